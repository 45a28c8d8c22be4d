// The way into the kernel: for the first CPU as QEMU leaves it, for the others by PSCI. Both come at EL1, without an MMU.

    .section .text.start, "ax"
    .global start, other_start
start:
    adrp x1, boot_stack_end
    add x1, x1, :lo12:boot_stack_end
    mov x19, #0
    b common

// The context is the address of two words: where the stack ends, and the number of the CPU.
other_start:
    ldp x1, x19, [x0]
common:
    mov sp, x1
    // Floating point and vectors are used by compiled code.
    mov x2, #(3 << 20)
    msr cpacr_el1, x2
    // Memory where it is, in blocks of 1 GiB: attributes 0 for memory, 1 for devices.
    mov x2, #0xff
    msr mair_el1, x2
    adrp x2, page_table
    msr ttbr0_el1, x2
    // 39 bits of addresses, tables in cached memory, 40 bits of physical ones.
    ldr x2, =(25 | 1 << 8 | 1 << 10 | 3 << 12 | 1 << 23 | 2 << 32)
    msr tcr_el1, x2
    adr x2, vectors
    msr vbar_el1, x2
    tlbi vmalle1
    dsb sy
    isb
    mrs x2, sctlr_el1
    mov x3, #(1 | 1 << 2 | 1 << 12)
    orr x2, x2, x3
    msr sctlr_el1, x2
    isb
    mov x29, #0
    mov x30, #0
    mov x0, x19
    cbnz x0, 1f
    bl first_start
1:  bl other_cpu_start
    b 1b

    .macro vector to
    .balign 0x80
    b \to
    .endm
    .balign 0x800
vectors:
    vector fault
    vector fault
    vector fault
    vector fault
    vector fault
    vector interrupt
    vector fault
    vector fault
    vector fault
    vector fault
    vector fault
    vector fault
    vector fault
    vector fault
    vector fault
    vector fault

fault:
    mrs x0, esr_el1
    mrs x1, elr_el1
    mrs x2, far_el1
    bl exception
    b fault

// Registers that a function may change are kept: general ones, and all vectors as a whole.
interrupt:
    sub sp, sp, #704
    stp x0, x1, [sp]
    stp x2, x3, [sp, #16]
    stp x4, x5, [sp, #32]
    stp x6, x7, [sp, #48]
    stp x8, x9, [sp, #64]
    stp x10, x11, [sp, #80]
    stp x12, x13, [sp, #96]
    stp x14, x15, [sp, #112]
    stp x16, x17, [sp, #128]
    stp x18, x30, [sp, #144]
    mrs x0, elr_el1
    mrs x1, spsr_el1
    stp x0, x1, [sp, #160]
    mrs x0, fpcr
    mrs x1, fpsr
    stp x0, x1, [sp, #176]
    add x0, sp, #192
    stp q0, q1, [x0]
    stp q2, q3, [x0, #32]
    stp q4, q5, [x0, #64]
    stp q6, q7, [x0, #96]
    stp q8, q9, [x0, #128]
    stp q10, q11, [x0, #160]
    stp q12, q13, [x0, #192]
    stp q14, q15, [x0, #224]
    stp q16, q17, [x0, #256]
    stp q18, q19, [x0, #288]
    stp q20, q21, [x0, #320]
    stp q22, q23, [x0, #352]
    stp q24, q25, [x0, #384]
    stp q26, q27, [x0, #416]
    stp q28, q29, [x0, #448]
    stp q30, q31, [x0, #480]
    bl timer_interrupt
    add x0, sp, #192
    ldp q0, q1, [x0]
    ldp q2, q3, [x0, #32]
    ldp q4, q5, [x0, #64]
    ldp q6, q7, [x0, #96]
    ldp q8, q9, [x0, #128]
    ldp q10, q11, [x0, #160]
    ldp q12, q13, [x0, #192]
    ldp q14, q15, [x0, #224]
    ldp q16, q17, [x0, #256]
    ldp q18, q19, [x0, #288]
    ldp q20, q21, [x0, #320]
    ldp q22, q23, [x0, #352]
    ldp q24, q25, [x0, #384]
    ldp q26, q27, [x0, #416]
    ldp q28, q29, [x0, #448]
    ldp q30, q31, [x0, #480]
    ldp x0, x1, [sp, #176]
    msr fpcr, x0
    msr fpsr, x1
    ldp x0, x1, [sp, #160]
    msr elr_el1, x0
    msr spsr_el1, x1
    ldp x2, x3, [sp, #16]
    ldp x4, x5, [sp, #32]
    ldp x6, x7, [sp, #48]
    ldp x8, x9, [sp, #64]
    ldp x10, x11, [sp, #80]
    ldp x12, x13, [sp, #96]
    ldp x14, x15, [sp, #112]
    ldp x16, x17, [sp, #128]
    ldp x18, x30, [sp, #144]
    ldp x0, x1, [sp]
    add sp, sp, #704
    eret

    .section .data
    .balign 4096
page_table:
    // Devices are below 1 GiB, and hold no code.
    .quad 0x0060000000000405
    .set address, 0x40000000
    .rept 511
    .quad address + 0x701
    .set address, address + 0x40000000
    .endr

    .section .bss
    .balign 4096
boot_stack:
    .skip 0x20000
boot_stack_end:
