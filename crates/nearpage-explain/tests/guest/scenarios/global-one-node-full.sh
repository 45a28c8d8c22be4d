# machine: two
# truth: rule=watermark zone=DMA32 killed=hog
fault "fill 0 0 KERNEL|THISNODE|NORETRY 1000000"
fault "holes 4"
hog 2000
