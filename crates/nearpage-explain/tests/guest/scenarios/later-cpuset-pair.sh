# machine: three
# truth: rule=watermark zone=DMA32 confined=cpuset killed=hog
# Two of three nodes are allowed.
mkdir /cg/pair; echo 1-2 > /cg/pair/cpuset.mems; echo 0-1 > /cg/pair/cpuset.cpus
in_group pair /hog 900
rmdir /cg/pair
