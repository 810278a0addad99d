# What every refill handler shares: the kernel's words, marks of sections, entries as the TLB wants them.
#
# A handler has $k0 and $k1 for itself. What it needs beyond, it saves to a page of the kernel that a wired entry of the
# TLB maps at the end of the addresses, so that a word there has an address of one instruction: OFFSET($0).

    .set noreorder
    .set noat

# Registers of coprocessor 0 (MIPS R4000 User's Manual, chapter 4).
    .equ INDEX, $0
    .equ ENTRY_LO0, $2
    .equ ENTRY_LO1, $3
    .equ CONTEXT, $4
    .equ WIRED, $6
    .equ BAD_VADDR, $8
    .equ ENTRY_HI, $10
    .equ STATUS, $12
    .equ CAUSE, $13
    .equ EPC, $14

# The kernel's words, from the end of the addresses on downwards.
    .equ SAVED_AT, -8
    .equ SAVED_V0, -16
    .equ SAVED_V1, -24
    .equ ROOT, -32
    .equ SALT, -40
    .equ MASK, -48
    .equ PLACE, -56

# Marks what follows as one of the parts that are counted apart: search, entries, write, exit.
    .macro part name
\name\()_\@:
    .endm

# An entry of `pagetable` as EntryLo:
#
#     31               8  7 6 5 4 3 2 1 0                 29               6  5 4 3  2 1 0
#    +------------------+-+-+-+-+-+-+-+-+                +------------------+------+-+-+-+
#    |   frame          |D|A|G|U|X|W|R|P|   --------->   |   frame          | 0 1 1|D|V|G|   D: W, V: R
#    +------------------+-+-+-+-+-+-+-+-+                +------------------+------+-+-+-+
    .macro as_entry_lo register, free
    srl \free, \register, 8
    sll \free, \free, 6
    andi \register, \register, 6
    or \register, \register, \free
    ori \register, \register, 3 << 3
    .endm

# The end of every refill: both entries are in registers.
    .macro finish even, odd, free
    part entries
    as_entry_lo \even, \free
    as_entry_lo \odd, \free
    part write
    dmtc0 \even, ENTRY_LO0
    dmtc0 \odd, ENTRY_LO1
    part search
    ld $at, SAVED_AT($0)
    # The R4700 needs an instruction before and after the write (as Linux' tlbex.c has it).
    part exit
    nop
    tlbwr
    nop
    eret
    .endm

# No page is found: the kernel's general handler goes on.
    .macro no_page
    part search
    ld $at, SAVED_AT($0)
    j fault
    nop
    .endm
