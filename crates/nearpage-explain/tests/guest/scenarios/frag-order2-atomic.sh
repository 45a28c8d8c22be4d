# machine: two
# truth: rule=no_block zone=DMA32 node=1 confined=this_node
# As above with every third page, and an urgent request: nothing was reserved for it.
fault "fill 1 0 KERNEL|NORETRY|THISNODE 3000000; fill 1 0 ATOMIC|MEMALLOC|THISNODE 3000000; wait 2500; fill 1 0 ATOMIC|MEMALLOC|THISNODE 3000000; holes 3; fill 1 2 ATOMIC|MEMALLOC|THISNODE 100000; ask 1 2 ATOMIC|THISNODE; drop 100000000"
