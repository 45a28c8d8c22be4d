// The way into the kernel: for the first CPU as the firmware leaves it, for the others by its calls (SBI, HSM). Both come in
// supervisor mode, without an MMU, with their number in a0.

    .attribute arch, "rv64gc"
    .section .text.start, "ax"
    .global start, other_start

// The firmware draws by lot who comes first. CPU 0 does the work: any other starts it in its place, and stops.
start:
    beqz a0, 1f
    mv a2, a1
    li a0, 0
    la a1, start
    li a7, 0x48534d
    li a6, 0
    ecall
    li a6, 1
    ecall
1:  la sp, boot_stack_end
    mv s0, a1
    call common
    mv a0, s0
    call first_start

// The context is the address of two words: where the stack ends, and the number of the CPU.
other_start:
    ld sp, 0(a1)
    ld s0, 8(a1)
    call common
    mv a0, s0
    call other_cpu_start

common:
    la t0, trap
    csrw stvec, t0
    csrw satp, zero
    // Compiled code uses floating point.
    li t0, 1 << 13
    csrs sstatus, t0
    csrw fcsr, zero
    // The timer's interrupts, once interrupts are on.
    li t0, 1 << 5
    csrw sie, t0
    ret

// Registers that a function may change are kept.
    .balign 4
trap:
    addi sp, sp, -304
    sd ra, 0(sp)
    sd t0, 8(sp)
    csrr t0, scause
    bgez t0, fault
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
    fsd ft0, 128(sp)
    fsd ft1, 136(sp)
    fsd ft2, 144(sp)
    fsd ft3, 152(sp)
    fsd ft4, 160(sp)
    fsd ft5, 168(sp)
    fsd ft6, 176(sp)
    fsd ft7, 184(sp)
    fsd ft8, 192(sp)
    fsd ft9, 200(sp)
    fsd ft10, 208(sp)
    fsd ft11, 216(sp)
    fsd fa0, 224(sp)
    fsd fa1, 232(sp)
    fsd fa2, 240(sp)
    fsd fa3, 248(sp)
    fsd fa4, 256(sp)
    fsd fa5, 264(sp)
    fsd fa6, 272(sp)
    fsd fa7, 280(sp)
    csrr t1, fcsr
    sd t1, 288(sp)
    mv a0, t0
    call interrupt
    ld t1, 288(sp)
    csrw fcsr, t1
    fld ft0, 128(sp)
    fld ft1, 136(sp)
    fld ft2, 144(sp)
    fld ft3, 152(sp)
    fld ft4, 160(sp)
    fld ft5, 168(sp)
    fld ft6, 176(sp)
    fld ft7, 184(sp)
    fld ft8, 192(sp)
    fld ft9, 200(sp)
    fld ft10, 208(sp)
    fld ft11, 216(sp)
    fld fa0, 224(sp)
    fld fa1, 232(sp)
    fld fa2, 240(sp)
    fld fa3, 248(sp)
    fld fa4, 256(sp)
    fld fa5, 264(sp)
    fld fa6, 272(sp)
    fld fa7, 280(sp)
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
    addi sp, sp, 304
    sret

fault:
    mv a0, t0
    csrr a1, sepc
    csrr a2, stval
    call exception
    j fault

    .section .bss
    .balign 4096
boot_stack:
    .skip 0x20000
boot_stack_end:
