# machine: two
# truth: rule=no_block zone=DMA32
# A huge page where every 17th page of both nodes is free.
fault "fill -1 0 KERNEL|NORETRY 3000000; fill -1 0 ATOMIC|MEMALLOC 3000000; wait 2500; fill -1 0 ATOMIC|MEMALLOC 3000000; holes 17; fill -1 9 ATOMIC|MEMALLOC 100000; ask 0 9 HIGHUSER_MOVABLE|COMP|NORETRY; drop 100000000"
