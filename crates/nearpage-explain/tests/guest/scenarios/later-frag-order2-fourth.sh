# machine: three
# truth: rule=no_block zone=DMA32 node=2 confined=this_node
# Every fourth page of the node without CPUs is free.
fault "fill 2 0 KERNEL|NORETRY|THISNODE 3000000; fill 2 0 ATOMIC|MEMALLOC|THISNODE 3000000; wait 2500; fill 2 0 ATOMIC|MEMALLOC|THISNODE 3000000; holes 4; fill 2 2 ATOMIC|MEMALLOC|THISNODE 100000; ask 2 2 KERNEL|THISNODE|NORETRY; drop 100000000"
