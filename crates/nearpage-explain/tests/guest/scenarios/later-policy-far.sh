# machine: three
# truth: rule=watermark zone=DMA32 node=2 confined=policy killed=hog
# Bound to the node without CPUs.
hog 400 2
