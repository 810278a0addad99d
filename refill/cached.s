# A refill handler with a software TLB in front of a tree: see crates/pagetable/src/cached/mod.rs.
#
#   Context:  the array's address | bits 31 to 13 of the address | 0: 4      an entry has 16 bytes
#   EntryHi:  bits 39 to 13 of the address | ASID                            the tag, where the ASID is the tag's number
#
# The array is aligned so that Context's upper bits can be its address; the mask keeps those, and the index.
    .section .vector, "ax"
refill:
    part search
    sd $at, SAVED_AT($0)
    dmfc0 $k0, CONTEXT
    ld $at, SALT($0)
    xor $k0, $k0, $at
    ld $at, MASK($0)
    and $k0, $k0, $at
    ld $at, 0($k0)
    dmfc0 $k1, ENTRY_HI
    bne $at, $k1, miss
    lw $k1, 12($k0)
    lw $k0, 8($k0)
    finish $k0, $k1, $at

    .section .more, "ax"
miss:
    part search
    sd $k0, PLACE($0)
    find
    ld $at, 0($k0)
    ld $k1, PLACE($0)
    sd $at, 8($k1)
    dmfc0 $at, ENTRY_HI
    sd $at, 0($k1)
    lw $k1, 4($k0)
    lw $k0, 0($k0)
    finish $k0, $k1, $at
none:
    part search
    found_none
