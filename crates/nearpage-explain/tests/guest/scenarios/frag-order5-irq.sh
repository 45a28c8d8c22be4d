# machine: two
# truth: rule=no_block zone=DMA32
# In an interrupt.
fault "fill -1 0 KERNEL|NORETRY 3000000; fill -1 0 ATOMIC|MEMALLOC 3000000; wait 2500; fill -1 0 ATOMIC|MEMALLOC 3000000; holes 2; fill -1 5 ATOMIC|MEMALLOC 100000; irq 1 5 ATOMIC; drop 100000000"
