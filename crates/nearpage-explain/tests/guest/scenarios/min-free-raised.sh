# machine: five
# truth: rule=watermark
# A huge min_free_kbytes refuses with much memory free.
old=$(cat /proc/sys/vm/min_free_kbytes)
echo 2000000 > /proc/sys/vm/min_free_kbytes
fault "fill -1 0 KERNEL|NORETRY 3000000; ask 0 0 KERNEL|NORETRY; drop 100000000"
echo "$old" > /proc/sys/vm/min_free_kbytes
