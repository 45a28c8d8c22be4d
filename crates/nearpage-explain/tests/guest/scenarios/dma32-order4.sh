# machine: five
# truth: rule=no_block zone=DMA32 confined=kind
fault fill 0 0 "KERNEL|DMA32|NORETRY" 2000000
fault holes 2
fault ask 0 4 "KERNEL|DMA32|NORETRY"
