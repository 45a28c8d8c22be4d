# machine: two
# truth: rule=no_block zone=DMA32
# As above with every third page, and an urgent request of order 2: urgent blocks were never reserved.
fault fill 1 0 "KERNEL|THISNODE|NORETRY" 1000000
fault holes 3
fault ask 1 2 "ATOMIC|THISNODE"
