# machine: five
# truth: rule=lowmem_reserve zone=DMA32
old=$(cat /proc/sys/vm/lowmem_reserve_ratio)
echo "1 1 1 0 0" > /proc/sys/vm/lowmem_reserve_ratio
fault fill 0 0 "KERNEL|THISNODE|NORETRY" 2000000
fault fill 1 0 "KERNEL|THISNODE|NORETRY" 2000000
fault ask 0 3 "KERNEL|NORETRY"
fault drop 100000000
echo "$old" > /proc/sys/vm/lowmem_reserve_ratio
