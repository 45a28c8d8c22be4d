# machine: two
# truth: rule=watermark zone=DMA32
# The same in an interrupt.
fault "fill -1 0 KERNEL|NORETRY 3000000; fill -1 0 ATOMIC 3000000; irq 1 0 ATOMIC; drop 100000000"
