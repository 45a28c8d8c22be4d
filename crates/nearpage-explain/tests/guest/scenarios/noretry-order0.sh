# machine: two
# truth: rule=watermark zone=DMA32
# A request that can wait and gives up early.
fault "fill -1 0 KERNEL|NORETRY 3000000; ask 1 0 KERNEL|NORETRY; drop 100000000"
