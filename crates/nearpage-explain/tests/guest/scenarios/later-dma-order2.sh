# machine: six
# truth: rule=no_block zone=DMA confined=kind
# Below 16 MiB every second page is free.
fault "fill 0 0 KERNEL|DMA|NORETRY 3000000; fill 0 0 ATOMIC|DMA|MEMALLOC 3000000; wait 2500; fill 0 0 ATOMIC|DMA|MEMALLOC 3000000; holes 2; fill 0 2 ATOMIC|MEMALLOC|DMA 100000; ask 0 2 KERNEL|DMA|NORETRY; drop 100000000"
