# The machine around a refill handler: it makes the accesses of an image, each with an empty TLB, and says what was wrong.
#
#   image:  words of the kernel | pages: frame, first word | accesses: address, expected word | tables
#
# The image lies at IMAGE; crates/machine/examples/refill.rs writes it, and has the order of its words.

    .equ IMAGE, 0xffffffff81000000
    .equ KSEG1, 0xffffffffa0000000
    .equ SERIAL, (KSEG1 + 0x180003f8)
    .equ RESET, (KSEG1 + 0x1f000500)
# Two frames for the words of the kernel.
    .equ WORDS, 0x20000
    .equ TLB_ENTRIES, 48
    .equ USAGE, 0x000000c0000000c0
    .equ FNV_PRIME, 0x100000001b3

    .section .general, "ax"
    dla $t0, unexpected
    jr $t0
    nop

    .text
    .globl _start
_start:
    # 64-bit addresses, exceptions at 0x80000000, no exception level.
    li $t0, 0xe0
    mtc0 $t0, STATUS
    jal empty_tlb
    nop
    # The wired entry.
    mtc0 $0, INDEX
    dla $t0, 0xffffffffffffe000
    dmtc0 $t0, ENTRY_HI
    li $t0, (WORDS >> 12 << 6) | 0x1f
    dmtc0 $t0, ENTRY_LO0
    li $t0, ((WORDS + 4096) >> 12 << 6) | 0x1f
    dmtc0 $t0, ENTRY_LO1
    tlbwi
    li $t0, 1
    mtc0 $t0, WIRED
    dla $s0, IMAGE
    ld $t0, 0($s0)
    sd $t0, ROOT($0)
    ld $t0, 8($s0)
    sd $t0, SALT($0)
    dli $t0, MASK_OF
    sd $t0, MASK($0)
    ld $t0, 16($s0)
    dmtc0 $t0, CONTEXT
    ld $s1, 24($s0)         # ASID
    ld $s2, 32($s0)         # pages
    ld $s3, 40($s0)         # accesses
    daddiu $s4, $s0, 80
1:  beqz $s2, 2f
    ld $t0, 0($s4)
    ld $t1, 8($s4)
    sd $t1, 0($t0)
    daddiu $s4, $s4, 16
    b 1b
    daddiu $s2, $s2, -1
2:  move $s5, $0            # wrong
3:  beqz $s3, 5f
    nop
    jal empty_tlb
    nop
    dmtc0 $s1, ENTRY_HI
    ld $t0, 0($s4)
    ld $t1, 8($s4)
    ld $t2, 0($t0)          # the access
    beq $t1, $t2, 4f
    nop
    daddiu $s5, $s5, 1
4:  daddiu $s4, $s4, 16
    b 3b
    daddiu $s3, $s3, -1
5:  # A digest of all tables; without usage bits of the array, which `pagetable` sets where it fills.
    ld $t0, 48($s0)         # tables
    ld $t1, 56($s0)         # bytes
    ld $t3, 64($s0)         # bytes of the array, with which they begin
    daddu $t1, $t1, $t0
    daddu $t3, $t3, $t0
    dli $t9, FNV_PRIME
    dli $t8, ~USAGE
    move $s6, $0
6:  ld $t2, 0($t0)
    sltu $v0, $t0, $t3
    andi $v1, $t0, 8
    beqz $v0, 7f
    nop
    beqz $v1, 7f
    nop
    and $t2, $t2, $t8
7:  xor $s6, $s6, $t2
    dmultu $s6, $t9
    mflo $s6
    dsrl32 $v0, $s6, 0
    daddiu $t0, $t0, 8
    bne $t0, $t1, 6b
    xor $s6, $s6, $v0
    dla $a0, text_wrong
    jal print
    move $a1, $s5
    dla $a0, text_digest
    jal print
    move $a1, $s6
end:
    dla $t0, RESET
    li $t1, 0x42
    sw $t1, 0($t0)
1:  b 1b
    nop

# The kernel's general handler of a page that is not there: the access finds all ones.
    .globl fault
fault:
    li $t2, -1
    dmfc0 $k0, EPC
    daddiu $k0, $k0, 4
    dmtc0 $k0, EPC
    eret

unexpected:
    mfc0 $s5, CAUSE
    dmfc0 $s6, EPC
    dmfc0 $s7, BAD_VADDR
    dla $a0, text_cause
    jal print
    move $a1, $s5
    dla $a0, text_epc
    jal print
    move $a1, $s6
    dla $a0, text_address
    jal print
    move $a1, $s7
    b end
    nop

empty_tlb:
    li $t0, TLB_ENTRIES - 1
    dla $t1, 0xffffffff80000000
    dmtc0 $0, ENTRY_LO0
    dmtc0 $0, ENTRY_LO1
1:  mtc0 $t0, INDEX
    dmtc0 $t1, ENTRY_HI
    daddiu $t1, $t1, 0x2000
    tlbwi
    daddiu $t0, $t0, -1
    bnez $t0, 1b
    nop
    jr $ra
    nop

# Prints the text at $a0 and the word $a1, and ends the line.
print:
    dla $t0, SERIAL
1:  lbu $t1, 0($a0)
    beqz $t1, 2f
    daddiu $a0, $a0, 1
    b 1b
    sb $t1, 0($t0)
2:  li $t2, 60
3:  dsrlv $t1, $a1, $t2
    andi $t1, $t1, 15
    sltiu $t3, $t1, 10
    bnez $t3, 4f
    addiu $t1, $t1, '0'
    addiu $t1, $t1, 'a' - '0' - 10
4:  sb $t1, 0($t0)
    bnez $t2, 3b
    addiu $t2, $t2, -4
    li $t1, '\n'
    jr $ra
    sb $t1, 0($t0)

    .data
text_wrong: .asciz "wrong "
text_digest: .asciz "digest "
text_cause: .asciz "exception cause "
text_epc: .asciz "at "
text_address: .asciz "address "
