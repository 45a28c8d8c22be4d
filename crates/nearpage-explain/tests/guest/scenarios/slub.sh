# machine: two
# truth: rule=watermark zone=DMA32
# Objects until no slab is to be had: the page allocator reports first, then SLUB.
fault fill -1 0 "KERNEL|NORETRY" 1000000
fault slab 100000 "ATOMIC"
