# machine: two
# truth: rule=no_block zone=DMA32
# Every second page of both nodes is free.
fault "fill -1 0 KERNEL|NORETRY 3000000; fill -1 0 ATOMIC|MEMALLOC 3000000; wait 2500; fill -1 0 ATOMIC|MEMALLOC 3000000; holes 2; fill -1 1 ATOMIC|MEMALLOC 100000; ask 1 1 NOWAIT; drop 100000000"
