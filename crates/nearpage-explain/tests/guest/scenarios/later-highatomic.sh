# machine: three
# truth: rule=highatomic_reserve zone=DMA32 node=1 confined=this_node
# Node 1 is 60 pages above min. Urgent pairs reserve pageblocks there; then somebody asks who may not use those.
fault "fill 1 0 NOWAIT|THISNODE 3000000; drop 60; wait 2500; fill 1 1 ATOMIC|THISNODE 4; ask 1 0 NOWAIT|THISNODE; drop 100000000"
