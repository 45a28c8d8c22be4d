# machine: two
# truth: rule=watermark zone=DMA32
# Urgent, and barred from the last reserves: half of min.
fault "fill -1 0 KERNEL|NORETRY 3000000; fill -1 0 ATOMIC|NOMEMALLOC 3000000; ask 1 0 ATOMIC|NOMEMALLOC; drop 100000000"
