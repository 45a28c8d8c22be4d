# machine: two
# truth: rule=watermark zone=DMA32
# Urgent, and it can wait: half of min.
fault "fill -1 0 KERNEL|NORETRY|HIGH 3000000; ask 1 0 KERNEL|NORETRY|HIGH; drop 100000000"
