# machine: two
# truth: rule=watermark zone=DMA32 node=1 confined=this_node
# Node 1 is full and node 0 is not.
fault "fill 1 0 KERNEL|THISNODE|NORETRY 3000000; ask 1 0 KERNEL|THISNODE|NORETRY; drop 100000000"
