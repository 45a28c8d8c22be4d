# machine: three
# truth: rule=watermark zone=DMA32 node=2 confined=this_node
# The node without CPUs is full, its neighbours are not; a request that cannot wait.
fault "fill 2 0 KERNEL|THISNODE|NORETRY 3000000; ask 2 0 NOWAIT|THISNODE; drop 100000000"
