# The way into the kernel: for the first CPU by the PVH protocol, for the others by INIT and SIPI.

# QEMU looks for this note: where to begin, in 32-bit mode without paging, with the start info in ebx.
    .section .note.Xen, "a", @note
    .balign 4
    .long 4, 4, 18              # name, description, XEN_ELFNOTE_PHYS32_ENTRY
    .asciz "Xen"
    .long pvh_entry

    .section .text
    .code32
    .global pvh_entry
pvh_entry:
    cli
    cld
    movl $boot_stack_end, %esp
    movl $page_tables, %eax
    movl %eax, %cr3
    movl %cr4, %eax
    orl $0x20, %eax             # PAE
    movl %eax, %cr4
    movl $0xc0000080, %ecx      # EFER
    rdmsr
    orl $0x100, %eax            # LME
    wrmsr
    movl %cr0, %eax
    orl $0x80000001, %eax       # PG, PE
    movl %eax, %cr0
    lgdt gdt_pointer
    ljmp $0x08, $long_mode

    .code64
long_mode:
    movw $0x10, %ax
    movw %ax, %ds
    movw %ax, %es
    movw %ax, %ss
    movl %ebx, %edi
    xorl %ebp, %ebp
    call first_cpu
1:  hlt
    jmp 1b

# What is copied to the page that a startup IPI names. It finds out nothing by itself: what it needs stands at its end.
    .section .rodata
    .set at, 0x8000
    .global trampoline, trampoline_end, trampoline_arguments
    .code16
trampoline:
    cli
    cld
    xorw %ax, %ax
    movw %ax, %ds
    lgdtl at + (trampoline_gdt_pointer - trampoline)
    movl %cr0, %eax
    orl $1, %eax
    movl %eax, %cr0
    ljmpl $0x18, $(at + (protected - trampoline))
    .code32
protected:
    movw $0x10, %ax
    movw %ax, %ds
    movw %ax, %ss
    movl at + (trampoline_arguments - trampoline), %eax
    movl %eax, %cr3
    movl %cr4, %eax
    orl $0x20, %eax
    movl %eax, %cr4
    movl $0xc0000080, %ecx
    rdmsr
    orl $0x100, %eax
    wrmsr
    movl %cr0, %eax
    orl $0x80000001, %eax
    movl %eax, %cr0
    ljmp $0x08, $(at + (long - trampoline))
    .code64
long:
    movw $0x10, %ax
    movw %ax, %ds
    movw %ax, %es
    movw %ax, %ss
    movl $at + (trampoline_arguments - trampoline), %eax
    movq 8(%rax), %rsp
    movq 16(%rax), %rdi
    movq 24(%rax), %rcx
    xorl %ebp, %ebp
    call *%rcx
1:  hlt
    jmp 1b
    .balign 8
trampoline_gdt:
    .quad 0, 0x00af9b000000ffff, 0x00cf93000000ffff, 0x00cf9b000000ffff
trampoline_gdt_pointer:
    .word 31
    .long at + (trampoline_gdt - trampoline)
    .balign 8
trampoline_arguments:
    .quad 0, 0, 0, 0            # page tables, stack, argument, where to begin
trampoline_end:

    .balign 8
gdt:
    .quad 0, 0x00af9b000000ffff, 0x00cf93000000ffff
gdt_pointer:
    .word 23
    .long gdt

# All of the first 512 GiB where it is, in pages of 1 GiB.
    .section .data
    .global page_tables
    .balign 4096
page_tables:
    .quad page_directory + 3
    .fill 511, 8, 0
page_directory:
    .set address, 0
    .rept 512
    .quad address + 0x83
    .set address, address + 0x40000000
    .endr

    .section .bss
    .balign 4096
boot_stack:
    .skip 0x20000
boot_stack_end:

# Interrupts: registers that a function may change are kept, and the handler is called.
    .section .text
    .macro keep
    push %rax
    push %rcx
    push %rdx
    push %rsi
    push %rdi
    push %r8
    push %r9
    push %r10
    push %r11
    .endm
    .global timer_entry, spurious_entry, nmi_entry, exception_entries
timer_entry:
    keep
    cld
    call timer_interrupt
    jmp restore
nmi_entry:
    keep
    cld
    call nmi_interrupt
restore:
    pop %r11
    pop %r10
    pop %r9
    pop %r8
    pop %rdi
    pop %rsi
    pop %rdx
    pop %rcx
    pop %rax
spurious_entry:
    iretq

    .balign 16
exception_entries:
    .set vector, 0
    .rept 32
    .balign 16
    movl $vector, %edi
    jmp exception
    .set vector, vector + 1
    .endr
exception:
    movq %rsp, %rsi
    andq $-16, %rsp
    call exception_interrupt
1:  hlt
    jmp 1b
