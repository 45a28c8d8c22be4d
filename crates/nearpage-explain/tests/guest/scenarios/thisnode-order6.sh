# machine: five
# truth: rule=no_block zone=Normal node=1 confined=this_node
# Half of node 1 is free, in single pages.
fault "fill 1 0 KERNEL|NORETRY|THISNODE 3000000; fill 1 0 ATOMIC|MEMALLOC|THISNODE 3000000; wait 2500; fill 1 0 ATOMIC|MEMALLOC|THISNODE 3000000; holes 2; fill 1 6 ATOMIC|MEMALLOC|THISNODE 100000; ask 1 6 KERNEL|THISNODE|NORETRY|COMP; drop 100000000"
