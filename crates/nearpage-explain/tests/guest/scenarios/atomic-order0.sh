# machine: two
# truth: rule=watermark zone=DMA32
# Urgent pages until there are none: all zones are down to 3/8 of min.
fault "fill -1 0 KERNEL|NORETRY 3000000; fill -1 0 ATOMIC 3000000; ask 0 0 ATOMIC; drop 100000000"
