# The way into the kernel by the PVH protocol: QEMU finds this note, and begins in 32-bit mode with the start info in ebx.
    .section .note.Xen, "a", @note
    .balign 4
    .long 4, 4, 18              # name, description, XEN_ELFNOTE_PHYS32_ENTRY
    .asciz "Xen"
    .long pvh_entry

    .section .text
    .code32
    .global pvh_entry
pvh_entry:
    movl $boot_stack_end, %esp
    movl $page_tables, %eax
    movl %eax, %cr3
    movl $0x20, %eax            # PAE
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
    movl $0x10, %eax
    movl %eax, %ds
    movl %eax, %es
    movl %eax, %ss
    movl %ebx, %edi
    xorl %ebp, %ebp
    call first_cpu

    .section .rodata
    .balign 8
gdt:
    .quad 0, 0x00af9b000000ffff, 0x00cf93000000ffff
gdt_pointer:
    .word 23
    .long gdt

# The first 512 GiB where they are, in pages of 1 GiB.
    .section .data
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
    .balign 16
    .skip 0x20000
boot_stack_end:
