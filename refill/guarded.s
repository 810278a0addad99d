# The search of a guarded table whose nodes have 1 << NODE_BITS entries: see crates/pagetable/src/guarded/mod.rs.
#
#   entry: pointer, guard     guard: address bits | shift - 1: 6 | index bits: 4 | pair | 0
#
# What an address and a guard differ in, shifted so that the index is an offset, has the index in its lower bits; all
# bits above are zeros if the guard matches.

# $k0: where the entries of the pair are. NODE_BITS is 0 in an adaptive table: the guard says how many bits the index has.
    .macro find
    sd $v0, SAVED_V0($0)
    .if NODE_BITS == 0
    sd $v1, SAVED_V1($0)
    .endif
    dmfc0 $v0, BAD_VADDR
    ld $k0, ROOT($0)
    ld $k1, 8($k0)
    index_bits
    beqz $at, leaf
    ld $k0, 0($k0)
node:
    .if NODE_BITS
    fixed_index
    .else
    index_of_guard
    .endif
    daddu $k0, $k0, $at
    ld $k1, 8($k0)
    index_bits
    bnez $at, node
    ld $k0, 0($k0)
leaf:
    xor $at, $k1, $v0
    dsrl $at, $at, 13
    bnez $at, none
    ld $v0, SAVED_V0($0)
    .if NODE_BITS == 0
    ld $v1, SAVED_V1($0)
    .endif
    .endm

# $at: not 0 if the guard at $k1 is that of a node.
    .macro index_bits
    andi $at, $k1, 15 << 2
    .endm

# $at: the offset of the address at $v0 in the node that the guard at $k1 leads to.
    .macro fixed_index
    xor $at, $k1, $v0
    dsrl $k1, $k1, 6
    daddiu $k1, $k1, -(NODE_BITS + 3)
    dsrlv $at, $at, $k1
    dsrl $k1, $at, NODE_BITS + 4
    bnez $k1, none
    andi $at, $at, ((1 << NODE_BITS) - 1) << 4
    .endm

    .macro index_of_guard
    dsrl $v1, $at, 2
    xor $at, $k1, $v0
    dsrl $k1, $k1, 6
    dsubu $k1, $k1, $v1
    daddiu $k1, $k1, -3
    dsrlv $at, $at, $k1
    daddiu $v1, $v1, 4
    dsrlv $k1, $at, $v1
    bnez $k1, none
    andi $at, $at, 255 << 4
    .endm

    .macro found_none
    ld $v0, SAVED_V0($0)
    .if NODE_BITS == 0
    ld $v1, SAVED_V1($0)
    .endif
    no_page
    .endm
