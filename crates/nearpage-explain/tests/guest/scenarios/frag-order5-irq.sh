# machine: two
# truth: rule=no_block zone=DMA32
# In an interrupt.
fault fill -1 0 "KERNEL|NORETRY" 1000000
fault holes 2
fault irq 1 5 "ATOMIC"
