# machine: two
# truth: rule=watermark zone=DMA32
# A request that is not urgent stops at min.
fault "fill -1 0 KERNEL|NORETRY 3000000; ask 0 0 NOWAIT; drop 100000000"
