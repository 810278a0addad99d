# A refill handler for buckets of 1 << STRIDE_SHIFT bytes, each with the first entry of a chain of 1 << PAGES_SHIFT pages:
# see crates/pagetable/src/hashed/mod.rs. It finds base pages; superpages are for the kernel's general handler.
#
#   entry: tag, link to the next entry plus 1 (or 0), a word for each page
#
# The hash is computed where it is an offset already: its lowest bits are those of the offset in the page, and masked.

    .equ CLUSTER_SHIFT, (12 + PAGES_SHIFT)

# Both entries of the pair: $k0 the even one's, `odd` the other. The entry of the table lies `distance` before `base`;
# `address` is what the program has accessed.
    .macro load_pair base, distance, address, odd
    .if PAGES_SHIFT > 1
    dsrl \address, \address, 13 - 3
    andi \address, \address, ((1 << (PAGES_SHIFT - 1)) - 1) << 3
    daddu \base, \base, \address
    .endif
    lw \odd, 20 - \distance(\base)
    lw $k0, 16 - \distance(\base)
    .endm

# The address that the program has accessed, where the pair depends on it.
    .macro load_address register
    .if PAGES_SHIFT > 1
    dmfc0 \register, BAD_VADDR
    .else
    nop
    .endif
    .endm

    .section .vector, "ax"
refill:
    part search
    sd $at, SAVED_AT($0)
    dmfc0 $k0, BAD_VADDR
    dsrl $k0, $k0, CLUSTER_SHIFT - STRIDE_SHIFT
    dsrl $k1, $k0, 24
    xor $k1, $k1, $k0
    dsrl $at, $k1, 12
    xor $k1, $k1, $at
    .if TABLE_BYTES <= 65536
    andi $k1, $k1, TABLE_BYTES - (1 << STRIDE_SHIFT)
    .else
    ld $at, MASK($0)
    and $k1, $k1, $at
    .endif
    ld $at, ROOT($0)
    daddu $k1, $k1, $at
    dsrl $k0, $k0, STRIDE_SHIFT
    dsll $k0, $k0, CLUSTER_SHIFT
    ori $k0, $k0, 1
    ld $at, 0($k1)
    bne $at, $k0, second
    load_address $at
    load_pair $k1, 0, $at, $at
    finish $k0, $at, $k1

    .section .more, "ax"
# The first entry of the overflow chain stays where it is.
second:
    part search
    ld $at, 8($k1)
    beqz $at, none
    sd $v0, SAVED_V0($0)
    ld $v0, -1($at)
    bne $v0, $k0, third
    ld $v0, SAVED_V0($0)
    .if PAGES_SHIFT > 1
    dmfc0 $k0, BAD_VADDR
    .endif
    load_pair $at, 1, $k0, $k1
    finish $k0, $k1, $at

# Those behind it come to the front. $at: a link to the entry; $v0: to the one before; $v1: its tag, then its link.
third:
    part search
    sd $v1, SAVED_V1($0)
    ld $v1, 7($at)
    beqz $v1, none_of_many
    move $v0, $at
    move $at, $v1
entry:
    ld $v1, -1($at)
    beq $v1, $k0, found
    ld $v1, 7($at)
    move $v0, $at
    bnez $v1, entry
    move $at, $v1
none_of_many:
    ld $v0, SAVED_V0($0)
    ld $v1, SAVED_V1($0)
none:
    part search
    no_page
found:
    part search
    ld $k0, 8($k1)
    sd $v1, 7($v0)
    sd $k0, 7($at)
    sd $at, 8($k1)
    ld $v0, SAVED_V0($0)
    ld $v1, SAVED_V1($0)
    .if PAGES_SHIFT > 1
    dmfc0 $k0, BAD_VADDR
    .endif
    load_pair $at, 1, $k0, $k1
    finish $k0, $k1, $at
