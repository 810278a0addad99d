/* From power-on to Rust, and between user mode and Rust.

   QEMU enters at _start by the PVH note, GRUB by the multiboot2 header: both in 32-bit protected mode without paging.
   Tables for the first steps map the lowest GiB three times: one to one, at the direct map, and where the kernel lies. */
.section .multiboot,"a"
.balign 8
multiboot: .long 0xe85250d6, 0, multiboot_end - multiboot, -(0xe85250d6 + (multiboot_end - multiboot))
    .short 0, 0
    .long 8
multiboot_end:
.section .note.pvh,"a",@note
    .long 4, 4, 18
    .asciz "Xen"
    .long _start, 0

.section .boot,"awx"
.code32
.global _start
_start:
    cli
    cld
    mov [boot_magic], eax
    mov [boot_info], ebx
    mov dword ptr [boot_pml4], offset boot_pdpt + 3
    mov dword ptr [boot_pml4 + 256 * 8], offset boot_pdpt + 3
    mov dword ptr [boot_pml4 + 511 * 8], offset boot_high + 3
    mov dword ptr [boot_pdpt], offset boot_pd + 3
    mov dword ptr [boot_high + 510 * 8], offset boot_pd + 3
    xor ecx, ecx
    mov eax, 0x83
1:  mov [boot_pd + ecx * 8], eax
    add eax, 0x200000
    inc ecx
    cmp ecx, 512
    jne 1b
    xor ebp, ebp
long_mode:
    mov eax, cr4
    or eax, 0xa0                  /* PAE, PGE */
    mov cr4, eax
    mov eax, offset boot_pml4
    mov cr3, eax
    mov ecx, 0xc0000080
    rdmsr
    or eax, 0x900                 /* LME, NXE */
    wrmsr
    mov eax, cr0
    and eax, 0x9fffffff           /* caches on: CD, NW */
    or eax, 0x80010005            /* PG, WP, PE; EM: no floating point, whose registers nobody keeps */
    mov cr0, eax
    lgdt [boot_gdtp]
    .byte 0xea
    .long in_long_mode
    .short 8
.code64
in_long_mode:
    mov eax, 0x10
    mov ds, eax
    mov es, eax
    mov ss, eax
    xor eax, eax
    mov fs, eax
    mov gs, eax
    movabs rax, offset high_start
    jmp rax
.balign 8
boot_gdt: .quad 0, 0x00af9a000000ffff, 0x00cf92000000ffff
boot_gdtp: .short 23
    .long boot_gdt
    .long 0
.global boot_magic, boot_info
boot_magic: .long 0
boot_info: .long 0

/* A processor that is started begins here, in real mode, at physical address 0x8000. */
.code16
.global ap_start, ap_end
ap_start:
    cli
    xor ax, ax
    mov ds, ax
    .byte 0x0f, 0x01, 0x16        /* lgdt */
    .short ap_gdtp - ap_start + 0x8000
    mov eax, cr0
    or eax, 1
    mov cr0, eax
    .byte 0x66, 0xea
    .long ap_32 - ap_start + 0x8000
    .short 8
.code32
ap_32:
    mov eax, 0x10
    mov ds, eax
    mov es, eax
    mov ss, eax
    mov ebp, 1
    mov eax, offset long_mode
    jmp eax
.balign 8
ap_gdt: .quad 0, 0x00cf9a000000ffff, 0x00cf92000000ffff
ap_gdtp: .short 23
    .long ap_gdt - ap_start + 0x8000
ap_end:
.balign 4096
.global boot_pml4
boot_pml4: .skip 4096
boot_pdpt: .skip 4096
boot_high: .skip 4096
boot_pd: .skip 4096

.section .text
.code64
high_start:
    mov eax, 1
    lock xadd [rip + started], rax
    mov rdi, rax
    cmp rax, {processors}
    jae 2f
    inc rax
    imul rax, rax, {stack}
    lea rsp, [rip + stacks]
    add rsp, rax
    xor ebp, ebp
    call {start}
2:  cli
    hlt
    jmp 2b

/* Traps. The stub of each vector leaves a number beside the error code, so that all look alike. */
.balign 16
.global trap_stubs
trap_stubs:
.set vector, 0
.rept 36
    .balign 16
    .if (vector != 8) && (vector < 10 || vector > 14) && (vector != 17) && (vector != 21)
    .byte 0x6a, 0                 /* push 0 */
    .endif
    .byte 0x6a, vector            /* push vector */
    jmp trap_entry
    .set vector, vector + 1
.endr
.balign 16
.global call_stub
call_stub:
    push 0
    push 128
    jmp trap_entry
.balign 16
.global spurious_stub
spurious_stub: iretq

.macro SAVE
    .irp register, rax,rbx,rcx,rdx,rsi,rdi,rbp,r8,r9,r10,r11,r12,r13,r14,r15
    push \register
    .endr
.endm
.macro RESTORE
    .irp register, r15,r14,r13,r12,r11,r10,r9,r8,rbp,rdi,rsi,rdx,rcx,rbx,rax
    pop \register
    .endr
    add rsp, 16
.endm
trap_entry:
    test byte ptr [rsp + 24], 3
    jz trap_in_kernel
    /* The processor has pushed into the context, as the TSS says: what is pushed now completes it. */
    SAVE
    mov rsp, [rsp + 176]
    cld
    pop r15
    pop r14
    pop r13
    pop r12
    pop rbp
    pop rbx
    ret
trap_in_kernel:
    SAVE
    cld
    mov rdi, rsp
    mov rbp, rsp
    and rsp, -16
    call {trap}
    mov rsp, rbp
    RESTORE
    iretq

/* enter_user(context): runs user mode as the context says, and returns after the next trap from there. */
.global enter_user
enter_user:
    push rbx
    push rbp
    push r12
    push r13
    push r14
    push r15
    mov [rdi + 176], rsp
    mov rsp, rdi
    RESTORE
    iretq

.section .data
.balign 8
.global started
started: .quad 0
.section .bss
.balign 4096
stacks: .skip {stack} * {processors}
