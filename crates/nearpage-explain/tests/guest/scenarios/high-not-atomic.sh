# machine: two
# truth: rule=watermark zone=DMA32
# Urgent, but it can wait: half of min.
fault fill -1 0 "KERNEL|NORETRY|HIGH" 1000000
fault ask 1 0 "KERNEL|NORETRY|HIGH"
