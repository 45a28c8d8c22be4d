# machine: three
# truth: rule=watermark zone=DMA32
# A request for a program that must not wait for a disk.
fault "fill -1 0 KERNEL|NORETRY 3000000; ask 1 0 NOIO|NORETRY; drop 100000000"
