# machine: two
# truth: rule=watermark zone=DMA32 node=1 confined=cpuset killed=hog
mkdir /cg/one; echo 1 > /cg/one/cpuset.mems; echo 0-1 > /cg/one/cpuset.cpus
in_group one /hog 700
rmdir /cg/one
