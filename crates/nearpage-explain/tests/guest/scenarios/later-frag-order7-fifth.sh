# machine: three
# truth: rule=no_block zone=DMA32 node=1 confined=this_node
# Every fifth page of node 1 is free; half a megabyte that may move.
fault "fill 1 0 KERNEL|NORETRY|THISNODE 3000000; fill 1 0 ATOMIC|MEMALLOC|THISNODE 3000000; wait 2500; fill 1 0 ATOMIC|MEMALLOC|THISNODE 3000000; holes 5; fill 1 7 ATOMIC|MEMALLOC|THISNODE 100000; ask 1 7 HIGHUSER_MOVABLE|THISNODE|NORETRY; drop 100000000"
