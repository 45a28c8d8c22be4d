# machine: two
# truth: rule=watermark zone=DMA32
fault fill -1 0 "KERNEL|NORETRY" 1000000
fault ask 1 0 "KERNEL|NORETRY"
