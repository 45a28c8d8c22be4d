# machine: two
# truth: rule=watermark zone=DMA32
# Without any watermark until no page is left; 100 come back, and somebody without that right asks.
fault "fill -1 0 KERNEL|NORETRY 3000000; fill -1 0 ATOMIC|MEMALLOC 3000000; drop 100; ask 1 0 ATOMIC; drop 100000000"
