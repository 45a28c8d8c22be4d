# machine: three
# truth: rule=watermark zone=DMA32 killed=hog
# All three nodes, by a program alone.
hog 3000
