# machine: six
# truth: rule=lowmem_reserve zone=DMA32
# DMA32 keeps half of what Normal has; four pages, at once.
old=$(cat /proc/sys/vm/lowmem_reserve_ratio)
echo "1 2 1 0 0" > /proc/sys/vm/lowmem_reserve_ratio
fault "fill 0 0 KERNEL|THISNODE|NORETRY 3000000; fill 1 0 KERNEL|THISNODE|NORETRY 3000000; ask 1 2 NOWAIT; drop 100000000"
echo "$old" > /proc/sys/vm/lowmem_reserve_ratio
