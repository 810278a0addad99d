# The search of E99's six-level table: see crates/pagetable/src/mpt.rs for its entries.
#
#   root: 8 entries   level 5, 4, 3, 2: 1024 entries   level 1: 256 pairs of 16 bytes
#
# An entry that leads to a table has the number of entries in use there in its lower bits.

# Reads the entry whose index begins at bit `low` of the address, in the table to which the last entry leads.
    .macro level low, mask
    beqz $k0, none
    dsrl $k1, $at, \low
    and $k0, $k0, $v0
    andi $k1, $k1, \mask
    daddu $k0, $k0, $k1
    .endm

# $k0: where the entries of the pair are.
    .macro find
    sd $v0, SAVED_V0($0)
    dmfc0 $at, BAD_VADDR
    ld $k0, ROOT($0)
    li $v0, -4096
    dsrl32 $k1, $at, 59 - 32
    andi $k1, $k1, 7 << 2
    daddu $k0, $k0, $k1
    lw $k0, 0($k0)
    level 49, 1023 << 2
    lw $k0, 0($k0)
    level 39, 1023 << 2
    lw $k0, 0($k0)
    level 29, 1023 << 2
    lw $k0, 0($k0)
    level 19, 1023 << 2
    lw $k0, 0($k0)
    level 9, 255 << 4
    ld $v0, SAVED_V0($0)
    .endm

    .macro found_none
    ld $v0, SAVED_V0($0)
    no_page
    .endm
