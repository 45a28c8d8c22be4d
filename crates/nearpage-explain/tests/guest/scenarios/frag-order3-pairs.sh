# machine: two
# truth: rule=no_block zone=DMA32
# Blocks of order 1 are free, none of order 2 or more: every second block of order 1 is given back.
fault "fill -1 1 KERNEL|NORETRY 3000000; fill -1 1 ATOMIC|MEMALLOC 3000000; wait 2500; fill -1 1 ATOMIC|MEMALLOC 3000000; holes 2; fill -1 3 ATOMIC|MEMALLOC 100000; ask 0 3 KERNEL|NORETRY; drop 100000000"
