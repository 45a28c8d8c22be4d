# machine: two
# truth: rule=watermark zone=DMA32
# A request that is not urgent stops at min.
fault fill -1 0 "KERNEL|NORETRY" 1000000
fault ask 0 0 "NOWAIT"
