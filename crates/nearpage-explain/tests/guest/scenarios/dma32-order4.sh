# machine: five
# truth: rule=no_block zone=DMA32 confined=kind
# Below 4 GiB every second page is free.
fault "fill 0 0 KERNEL|DMA32|NORETRY 3000000; fill 0 0 ATOMIC|DMA32|MEMALLOC 3000000; wait 2500; fill 0 0 ATOMIC|DMA32|MEMALLOC 3000000; holes 2; fill 0 4 ATOMIC|MEMALLOC|DMA32 100000; ask 0 4 KERNEL|DMA32|NORETRY; drop 100000000"
