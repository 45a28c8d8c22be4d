# machine: two
# truth: rule=watermark zone=DMA32
fault fill -1 0 "KERNEL|NORETRY" 1000000
fault fill -1 0 "ATOMIC" 1000000
fault irq 1 0 "ATOMIC"
