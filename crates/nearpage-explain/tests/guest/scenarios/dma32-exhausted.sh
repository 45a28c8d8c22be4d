# machine: five
# truth: rule=watermark zone=DMA32 confined=kind
# Addresses below 4 GiB are used up, Normal is not.
fault "fill 0 0 KERNEL|DMA32|NORETRY 3000000; ask 0 0 KERNEL|DMA32|NORETRY; drop 100000000"
