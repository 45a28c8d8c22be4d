# machine: two
# truth: rule=no_block zone=DMA32
fault fill -1 0 "KERNEL|NORETRY" 1000000
fault holes 2
fault ask 1 1 "NOWAIT"
