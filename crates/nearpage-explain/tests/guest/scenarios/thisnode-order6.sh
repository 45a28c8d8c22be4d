# machine: five
# truth: rule=no_block zone=Normal node=1 confined=this_node?
fault fill 1 0 "KERNEL|THISNODE|NORETRY" 1000000
fault holes 2
fault ask 1 6 "KERNEL|THISNODE|NORETRY|COMP"
