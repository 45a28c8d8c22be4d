# machine: two
# truth: rule=watermark zone=DMA32 node=1 confined=policy killed=hog
hog 700 1
