# machine: two
# truth: rule=no_block zone=DMA32
# A huge page where every 65th page of both nodes is free.
fault fill -1 0 "KERNEL|NORETRY" 1000000
fault holes 17
fault ask 0 9 "HIGHUSER_MOVABLE|COMP|NORETRY"
