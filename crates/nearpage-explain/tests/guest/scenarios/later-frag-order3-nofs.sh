# machine: three
# truth: rule=no_block zone=DMA32
# Every second page of three nodes is free; a file system asks.
fault "fill -1 0 KERNEL|NORETRY 3000000; fill -1 0 ATOMIC|MEMALLOC 3000000; wait 2500; fill -1 0 ATOMIC|MEMALLOC 3000000; holes 2; fill -1 3 ATOMIC|MEMALLOC 100000; ask 0 3 NOFS|NORETRY; drop 100000000"
