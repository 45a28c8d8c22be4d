# machine: five
# truth: rule=watermark zone=DMA confined=kind
# Addresses below 16 MiB are used up.
fault "fill 0 0 KERNEL|DMA|NORETRY 3000000; ask 0 0 KERNEL|DMA|NORETRY; drop 100000000"
