# machine: two
# truth: rule=no_block zone=DMA32 confined=this_node?
# All of node 1 is taken page by page and every second page given back: half of it is free, in single pages.
fault fill 1 0 "KERNEL|THISNODE|NORETRY" 1000000
fault holes 2
fault ask 1 4 "KERNEL|THISNODE|NORETRY"
