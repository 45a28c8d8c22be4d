# machine: two
# truth: rule=watermark zone=DMA32
# Without any watermark until no page is left; then somebody without that right asks.
fault fill -1 0 "KERNEL|NORETRY" 1000000
fault fill -1 0 "ATOMIC|MEMALLOC" 20000000
fault drop 300
fault ask 1 0 "ATOMIC"
