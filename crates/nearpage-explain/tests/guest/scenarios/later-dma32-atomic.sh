# machine: six
# truth: rule=watermark zone=DMA32 confined=kind
# Urgent, below 4 GiB.
fault "fill 0 0 KERNEL|DMA32|NORETRY 3000000; fill 0 0 ATOMIC|DMA32 3000000; ask 0 0 ATOMIC|DMA32; drop 100000000"
