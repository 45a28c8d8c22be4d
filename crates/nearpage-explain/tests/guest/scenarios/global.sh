# machine: two
# truth: rule=watermark zone=DMA32 killed=hog
# Both nodes: first node 1 by the module, then the rest by a process.
fault "fill 1 0 KERNEL|THISNODE|NORETRY 100000"
hog 2000
