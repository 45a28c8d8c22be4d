# machine: five
# truth: rule=watermark zone=DMA confined=kind
fault fill 0 0 "KERNEL|DMA|NORETRY" 2000000
fault ask 0 0 "KERNEL|DMA|NORETRY"
