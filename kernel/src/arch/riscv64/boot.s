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
    bnez t1, hart_stops
    csrsi mip, 2
    ld t1, 0(t0)
    ld t2, 8(t0)
    csrrw t0, mscratch, t0
    mret
hart_stops:
    sd t1, 40(t0)
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
    .irp number, 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30
    \what x\number, 8 * \number(t6)
    .endr
.endm
/* What a function must keep, and what it may change; each in its place of 256 bytes on the stack. */
.macro KEPT what
    .irp number, 1,8,9,18,19,20,21,22,23,24,25,26,27
    \what x\number, 8 * \number(sp)
    .endr
.endm
.macro CHANGED what
    .irp number, 1,5,6,7,10,11,12,13,14,15,16,17,28,29,30,31
    \what x\number, 8 * \number(sp)
    .endr
.endm
/* enter_user(context): runs user mode as the context says, and returns after the next trap from there. */
.global enter_user
enter_user:
    addi sp, sp, -256
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
    addi sp, sp, 256
    ret
trap_in_kernel:
    csrrw t6, sscratch, t6
    addi sp, sp, -256
    CHANGED sd
    csrr a0, scause
    csrr a1, sepc
    csrr a2, stval
    call {trap}
    CHANGED ld
    addi sp, sp, 256
    sret

/* Physical addresses of what lies too far from the kernel's image for its own code. */
.section .rodata
.balign 8
.global places
places: .quad boot_tree, kernel_end, machine_save
.section .bss
.balign 4096
stacks: .skip {stack} * {processors}
