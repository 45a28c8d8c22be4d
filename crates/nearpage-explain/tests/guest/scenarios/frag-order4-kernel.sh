# machine: two
# truth: rule=no_block zone=DMA32 node=1 confined=this_node
# All of node 1 is taken page by page and every second page given back: half of it is free, in single pages.
fault "fill 1 0 KERNEL|NORETRY|THISNODE 3000000; fill 1 0 ATOMIC|MEMALLOC|THISNODE 3000000; wait 2500; fill 1 0 ATOMIC|MEMALLOC|THISNODE 3000000; holes 2; fill 1 4 ATOMIC|MEMALLOC|THISNODE 100000; ask 1 4 KERNEL|THISNODE|NORETRY; drop 100000000"
