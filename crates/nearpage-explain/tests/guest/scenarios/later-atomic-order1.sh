# machine: three
# truth: rule=watermark zone=DMA32
# Urgent pairs of pages, where urgent single pages have taken all that such requests may.
fault "fill -1 0 KERNEL|NORETRY 3000000; fill -1 0 ATOMIC 3000000; ask 2 1 ATOMIC; drop 100000000"
