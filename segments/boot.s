# A processor in 32-bit protected mode that does what a script says, and compares what its accesses do.
#
#   0          user: the segment of a space, from its base up to its limit
#   e0000000   the lowest 64 MiB of physical memory, in every root: the kernel's segments begin there, so that an address
#              of the kernel is a physical address
#
# crates/hat/examples/segments.rs writes the script, and the memory that it begins with.
#
#   WRITE address value | FORGET start pages | LOAD root | SEGMENTS base last-page | ADOPT root
#   ACCESS kind address value vector word    | END
#
# The bits of a kind from 8 on are another vector with which the access may end.
    .intel_syntax noprefix
    .code32

    .equ KERNEL, 0xe0000000
    .equ KERNEL_ENTRY, KERNEL >> 22
    .equ LARGE_PAGES, 16
    .equ PRESENT_WRITABLE_LARGE, 0x83
    .equ KCODE, 0x08
    .equ KDATA, 0x10
    .equ UCODE, 0x1b
    .equ UDATA, 0x23
    .equ TSS, 0x28
    .equ COM1, 0x3f8
    .equ CODE, 0x1000
    .equ PUSH, 2
    .equ FETCH, 3
    .equ GATES, 8

    .section .multiboot, "a"
    .balign 4
    .long 0x1badb002, 0, -0x1badb002

    .text
    .globl _start
_start:
    cli
    cld
    # The lowest memory at 0 and at the kernel's addresses.
    mov edi, offset boot_root
    mov eax, PRESENT_WRITABLE_LARGE
    xor ecx, ecx
1:  mov [edi + ecx * 4], eax
    mov [edi + ecx * 4 + KERNEL_ENTRY * 4], eax
    add eax, 1 << 22
    inc ecx
    cmp ecx, LARGE_PAGES
    jne 1b
    mov eax, cr4
    or eax, 0x10                    # pages of 4 MiB
    mov cr4, eax
    mov cr3, edi
    mov eax, cr0
    or eax, 0x80010000              # paging, and no stores of the kernel to pages that may be read only
    mov cr0, eax
    lgdt [gdt_pointer]
    mov ax, KDATA
    mov ds, ax
    mov es, ax
    mov ss, ax
    mov esp, offset stack_end
    .byte 0xea                      # a far jump
    .long high
    .word KCODE
high:
    # The task state has an address that the assembler cannot divide into the descriptor's fields; so have gates.
    mov eax, offset tss + KERNEL
    mov [gdt_tss + 2], ax
    shr eax, 16
    mov [gdt_tss + 4], al
    mov [gdt_tss + 7], ah
    mov ax, TSS
    ltr ax
    mov esi, offset gates
    mov ecx, GATES
1:  lodsd
    lea edi, [idt + eax * 8]
    lodsd
    mov [edi], ax
    mov word ptr [edi + 2], KCODE
    shr eax, 16
    mov [edi + 6], ax
    lodsd
    mov [edi + 4], ax
    loop 1b
    lidt [idt_pointer]
    call serial_begin
    mov esi, offset script
next:
    lodsd
    cmp eax, 6
    ja broken
    jmp [operations + eax * 4]

write:
    lodsd
    mov edi, eax
    lodsd
    mov [edi], eax
    jmp next

forget:
    lodsd
    mov edi, eax
    lodsd
    mov ecx, eax
1:  lea ebx, [edi - KERNEL]         # the kernel's segments have a base
    invlpg [ebx]
    add edi, 4096
    loop 1b
    jmp next

load:
    lodsd
    mov cr3, eax
    inc dword ptr [loads]
    jmp next

# The descriptors of user mode get this base, and this number of the last page.
segments:
    lodsd
    mov edx, eax
    lodsd
    mov ebx, offset gdt_user
    mov ecx, 2
1:  mov [ebx], ax                   # limit, 15 to 0
    mov [ebx + 2], dx               # base, 15 to 0
    mov edi, edx
    shr edi, 16
    push eax
    mov eax, edi
    mov [ebx + 4], al               # base, 23 to 16
    mov [ebx + 7], ah               # base, 31 to 24
    pop eax
    mov edi, eax
    shr edi, 16
    and edi, 15
    or edi, 0xc0                    # units of 4 KiB, 32 bits
    push eax
    mov eax, edi
    mov [ebx + 6], al
    pop eax
    add ebx, 8
    loop 1b
    jmp next

# The kernel's addresses in a new root.
adopt:
    lodsd
    lea edi, [eax + KERNEL_ENTRY * 4]
    mov eax, PRESENT_WRITABLE_LARGE
    mov ecx, LARGE_PAGES
1:  mov [edi], eax
    add edi, 4
    add eax, 1 << 22
    loop 1b
    jmp next

access:
    lodsd
    mov [other], ah
    movzx ecx, al                   # kind
    lodsd
    mov ebx, eax                    # address
    lodsd                           # value
    mov edx, ecx
    shl edx, 4
    add edx, CODE                   # where user mode begins
    cmp ecx, FETCH
    jne 1f
    mov edx, ebx
1:  lea edi, [ebx + 4]              # the stack, of which a push uses the address
    cmp ecx, PUSH
    je 2f
    mov edi, 0x1800                 # it uses none
2:  mov [kind], ecx
    mov [kernel_si], esi
    mov [kernel_sp], esp
    push UDATA
    push edi
    push 2                          # flags, without interrupts
    push UCODE
    push edx
    mov dx, UDATA
    mov ds, dx
    mov es, dx
    iretd

# Whatever user mode ends with comes here: the vector is at the top of the stack.
trap:
    cld
    push eax
    mov ax, KDATA
    mov ds, ax
    mov es, ax
    pop eax                         # what a load has read
    pop edx                         # vector
    mov esp, [kernel_sp]
    mov esi, [kernel_si]
    inc dword ptr [traps + edx * 4]
    mov ebx, eax
    lodsd
    cmp eax, edx
    je 1f
    cmp dl, [other]
    jne differs
1:  lodsd
    cmp edx, 0x80
    jne next
    cmp dword ptr [kind], 0
    jne next
    cmp eax, ebx
    je next
    # A load has read another word.
    mov edx, eax
    mov eax, ebx
    mov ebx, offset text_word
    call say
    mov eax, edx
    mov ebx, offset text_expected
    call say
    jmp badly
differs:
    mov ecx, eax
    mov eax, edx
    mov ebx, offset text_vector
    call say
    mov eax, ecx
    mov ebx, offset text_expected
    call say
    jmp badly
broken:
    mov ebx, offset text_broken
    call say
badly:
    mov eax, esi
    sub eax, offset script
    shr eax, 2
    mov ebx, offset text_at
    call say
    mov ebx, offset text_badly
    mov edi, 17
    jmp finish

end:
    mov eax, [loads]
    mov ebx, offset text_loads
    call say
    mov eax, [traps + 12 * 4]
    mov ebx, offset text_stack
    call say
    mov eax, [traps + 13 * 4]
    mov ebx, offset text_protection
    call say
    mov eax, [traps + 14 * 4]
    mov ebx, offset text_page
    call say
    mov ebx, offset text_well
    mov edi, 16
finish:
    call text
    mov al, 10
    call put
    mov edx, COM1 + 5
1:  in al, dx                       # until the last byte is out
    test al, 0x40
    jz 1b
    # QEMU ends by the first, Bochs by the second.
    mov edx, 0xf4
    mov eax, edi
    out dx, al
    mov edx, 0x8900
    mov ebx, offset text_shutdown
1:  mov al, [ebx]
    test al, al
    jz 2f
    out dx, al
    inc ebx
    jmp 1b
2:  hlt
    jmp 2b

serial_begin:
    mov ebx, offset serial_registers
    mov ecx, 5
1:  movzx edx, byte ptr [ebx]
    add edx, COM1
    mov al, [ebx + 1]
    out dx, al
    add ebx, 2
    loop 1b
    ret

# Writes the byte in al.
put:
    push edx
    push eax
    mov edx, COM1 + 5
1:  in al, dx
    test al, 0x20
    jz 1b
    mov edx, COM1
    pop eax
    out dx, al
    pop edx
    ret

# Writes the text at ebx.
text:
    mov al, [ebx]
    test al, al
    jz 1f
    call put
    inc ebx
    jmp text
1:  ret

# Writes the text at ebx and the number in eax, and ends the line.
say:
    push ecx
    push edx
    push eax
    call text
    pop edx
    mov ecx, 8
1:  rol edx, 4
    mov al, dl
    and al, 15
    add al, 0x30
    cmp al, 0x3a
    jb 2f
    add al, 0x61 - 0x3a
2:  call put
    loop 1b
    mov al, 10
    call put
    pop edx
    pop ecx
    ret

    .macro stub vector, has_code
trap_\vector:
    .if \has_code
    add esp, 4
    .endif
    push \vector
    jmp trap
    .endm
    stub 6, 0
    stub 8, 1
    stub 10, 1
    stub 11, 1
    stub 12, 1
    stub 13, 1
    stub 14, 1
    stub 128, 0

    .data
    .balign 8
    # Flat from the kernel's base on: code, data; of user mode: code, data; the task state.
gdt:
    .quad 0, 0xe0cf9a000000ffff, 0xe0cf92000000ffff
gdt_user:
    .quad 0x00cffa000000ffff, 0x00cff2000000ffff
gdt_tss:
    .quad 0x0000890000000067
gdt_pointer:
    .word . - gdt - 1
    .long gdt + KERNEL
idt_pointer:
    .word 129 * 8 - 1
    .long idt + KERNEL
    # Vector, handler, kind: user mode may call the last one.
gates:
    .irp vector, 6, 8, 10, 11, 12, 13, 14
    .long \vector, trap_\vector, 0x8e00
    .endr
    .long 128, trap_128, 0xee00
operations: .long end, write, forget, load, segments, access, adopt
serial_registers: .byte 1, 0, 3, 0x80, 0, 1, 1, 0, 3, 3
text_word: .asciz "found: a load has read "
text_vector: .asciz "found: an access has ended with vector "
text_expected: .asciz "expected "
text_broken: .asciz "the script has no operation "
text_at: .asciz "at word "
text_loads: .asciz "root loads "
text_stack: .asciz "stack faults "
text_protection: .asciz "protection faults "
text_page: .asciz "page faults "
text_badly: .asciz "the machine ends badly"
text_well: .asciz "the machine ends well"
text_shutdown: .asciz "Shutdown"
    .balign 8
tss:
    .long 0, stack_end, KDATA
    .fill 22, 4, 0
    .word 0, 104

    .bss
    .balign 4096
boot_root: .skip 4096
idt: .skip 129 * 8
kind: .skip 4
other: .skip 4
kernel_si: .skip 4
kernel_sp: .skip 4
loads: .skip 4
traps: .skip 4 * 256
    .skip 4096
stack_end:

    .section .memory, "aw"
    .incbin "memory"
    .section .script, "a"
script:
    .incbin "script"
