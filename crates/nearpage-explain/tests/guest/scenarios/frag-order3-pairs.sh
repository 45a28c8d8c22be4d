# machine: two
# truth: rule=no_block zone=DMA32
# Blocks of order 2 are free, of order 3 none: every second of order 2 is given back.
fault fill -1 2 "KERNEL|NORETRY" 1000000
fault fill -1 0 "KERNEL|NORETRY" 1000000
fault holes 1000000
fault holes 2
fault ask 0 3 "KERNEL|NORETRY"
