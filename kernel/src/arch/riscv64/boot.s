/* From power-on to Rust, and between user mode and Rust.

   QEMU's board `virt` without firmware starts every hart here in machine mode. Machine mode keeps the interrupts between
   harts, which it hands on as those of supervisor mode; all else is delegated. */
.section .boot,"awx"
.global _start
_start:
    li t0, {processors}
    bgeu a0, t0, hart_parks
    /* All of memory for supervisor mode. */
    li t0, -1
    csrw pmpaddr0, t0
    li t0, 0x1f
    csrw pmpcfg0, t0
    li t0, 0xb1ff
    csrw medeleg, t0
    li t0, 0x222
    csrw mideleg, t0
    li t0, -1
    csrw mcounteren, t0
    csrw scounteren, t0
    /* menvcfg: the timer of supervisor mode; accessed and dirty bits by hardware. */
    li t0, (1 << 63) | (1 << 61)
    csrw 0x30a, t0
    la t0, machine_trap
    csrw mtvec, t0
    la t0, machine_save
    slli t1, a0, 6
    add t0, t0, t1
    sd a0, 24(t0)
    csrw mscratch, t0
    csrwi mie, 8
    li t0, (3 << 11) | (1 << 3)
    csrc mstatus, t0
    li t0, 1 << 11
    csrs mstatus, t0
    la t0, supervisor_start
    csrw mepc, t0
    mret
hart_parks:
    wfi
    j hart_parks

supervisor_start:
    la t0, boot_root
    bnez a0, 2f
    /* The first hart makes tables of 1 GiB pages: memory one to one, 4 GiB at the direct map, and the kernel's. */
    li t1, 0xcf | (0x80000 << 10)
    sd t1, 2 * 8(t0)
    li t3, 0xcf
    li t2, 0
1:  slli t4, t2, 3
    add t4, t4, t0
    li t5, 256 * 8
    add t4, t4, t5
    sd t3, 0(t4)
    li t5, 0x40000 << 10
    add t3, t3, t5
    addi t2, t2, 1
    li t5, 4
    bne t2, t5, 1b
    li t5, 510 * 8
    add t5, t5, t0
    sd t1, 0(t5)
    la t5, boot_tree
    sd a1, 0(t5)
    fence rw, rw
    la t5, boot_go
    li t6, 1
    sw t6, 0(t5)
    j 3f
2:  la t5, boot_go
    lw t6, 0(t5)
    beqz t6, 2b
    fence rw, rw
3:  srli t0, t0, 12
    li t1, 8
    slli t1, t1, 60
    or t0, t0, t1
    sfence.vma
    csrw satp, t0
    sfence.vma
    ld t0, supervisor_high
    jr t0
.balign 8
supervisor_high: .quad high_start
.global boot_tree
boot_tree: .quad 0
boot_go: .quad 0

/* An interrupt of another hart: it is passed on, or, where this hart is to stop, taken at its word. */
.balign 4
machine_trap:
    csrrw t0, mscratch, t0
    sd t1, 0(t0)
    sd t2, 8(t0)
    csrr t1, mcause
    bgez t1, machine_wrong
    ld t1, 24(t0)
    slli t1, t1, 2
    li t2, 0x2000000
    add t1, t1, t2
    sw zero, 0(t1)
    ld t1, 32(t0)
    bnez t1, hart_parks
    csrsi mip, 2
    ld t1, 0(t0)
    ld t2, 8(t0)
    csrrw t0, mscratch, t0
    mret
/* Nothing else comes here, as all is delegated: this hart stops. */
machine_wrong:
    j hart_parks
.balign 64
.global machine_save
machine_save: .skip 64 * {processors}
.balign 4096
.global boot_root
boot_root: .skip 4096

.section .text
high_start:
    mv tp, a0
    la sp, stacks
    addi t0, a0, 1
    slli t0, t0, {stack_shift}
    add sp, sp, t0
    la t0, trap_entry
    csrw stvec, t0
    csrw sscratch, zero
    call {start}

.macro EACH what
    \what x1, 8(t6)
    \what x2, 16(t6)
    \what x3, 24(t6)
    \what x4, 32(t6)
    \what x5, 40(t6)
    \what x6, 48(t6)
    \what x7, 56(t6)
    \what x8, 64(t6)
    \what x9, 72(t6)
    \what x10, 80(t6)
    \what x11, 88(t6)
    \what x12, 96(t6)
    \what x13, 104(t6)
    \what x14, 112(t6)
    \what x15, 120(t6)
    \what x16, 128(t6)
    \what x17, 136(t6)
    \what x18, 144(t6)
    \what x19, 152(t6)
    \what x20, 160(t6)
    \what x21, 168(t6)
    \what x22, 176(t6)
    \what x23, 184(t6)
    \what x24, 192(t6)
    \what x25, 200(t6)
    \what x26, 208(t6)
    \what x27, 216(t6)
    \what x28, 224(t6)
    \what x29, 232(t6)
    \what x30, 240(t6)
.endm
.macro KEPT what
    \what s0, 0(sp)
    \what s1, 8(sp)
    \what s2, 16(sp)
    \what s3, 24(sp)
    \what s4, 32(sp)
    \what s5, 40(sp)
    \what s6, 48(sp)
    \what s7, 56(sp)
    \what s8, 64(sp)
    \what s9, 72(sp)
    \what s10, 80(sp)
    \what s11, 88(sp)
    \what ra, 96(sp)
.endm
/* enter_user(context): runs user mode as the context says, and returns after the next trap from there. */
.global enter_user
enter_user:
    addi sp, sp, -112
    KEPT sd
    mv t6, a0
    sd sp, 288(t6)
    sd tp, 296(t6)
    csrw sscratch, t6
    ld t0, 256(t6)
    csrw sepc, t0
    li t0, 1 << 8
    csrc sstatus, t0
    li t0, 1 << 5
    csrs sstatus, t0
    EACH ld
    ld x31, 248(t6)
    sret

.balign 4
trap_entry:
    csrrw t6, sscratch, t6
    beqz t6, trap_in_kernel
    EACH sd
    csrrw t0, sscratch, zero
    sd t0, 248(t6)
    csrr t0, sepc
    sd t0, 256(t6)
    csrr t0, scause
    sd t0, 264(t6)
    csrr t0, stval
    sd t0, 272(t6)
    ld sp, 288(t6)
    ld tp, 296(t6)
    KEPT ld
    addi sp, sp, 112
    ret
trap_in_kernel:
    csrrw t6, sscratch, t6
    addi sp, sp, -144
    sd ra, 0(sp)
    sd t0, 8(sp)
    sd t1, 16(sp)
    sd t2, 24(sp)
    sd t3, 32(sp)
    sd t4, 40(sp)
    sd t5, 48(sp)
    sd t6, 56(sp)
    sd a0, 64(sp)
    sd a1, 72(sp)
    sd a2, 80(sp)
    sd a3, 88(sp)
    sd a4, 96(sp)
    sd a5, 104(sp)
    sd a6, 112(sp)
    sd a7, 120(sp)
    csrr a0, scause
    csrr a1, sepc
    csrr a2, stval
    call {trap}
    ld ra, 0(sp)
    ld t0, 8(sp)
    ld t1, 16(sp)
    ld t2, 24(sp)
    ld t3, 32(sp)
    ld t4, 40(sp)
    ld t5, 48(sp)
    ld t6, 56(sp)
    ld a0, 64(sp)
    ld a1, 72(sp)
    ld a2, 80(sp)
    ld a3, 88(sp)
    ld a4, 96(sp)
    ld a5, 104(sp)
    ld a6, 112(sp)
    ld a7, 120(sp)
    addi sp, sp, 144
    sret

/* Physical addresses of what lies too far from the kernel's image for its own code. */
.section .rodata
.balign 8
.global places
places: .quad boot_tree, kernel_end, machine_save
.section .bss
.balign 4096
stacks: .skip {stack} * {processors}
