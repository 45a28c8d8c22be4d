# machine: two
# truth: rule=watermark zone=DMA32
# Objects until no slab is to be had: the page allocator reports first, then SLUB.
fault "fill -1 0 KERNEL|NORETRY 3000000; fill -1 0 ATOMIC 3000000; slab 100000 ATOMIC; drop 100000000"
