# machine: six
# truth: rule=watermark
# Urgent, and refused with a gigabyte free.
old=$(cat /proc/sys/vm/min_free_kbytes)
echo 3000000 > /proc/sys/vm/min_free_kbytes
fault "fill -1 0 KERNEL|NORETRY 3000000; fill -1 0 ATOMIC|NOMEMALLOC 3000000; ask 1 0 ATOMIC|NOMEMALLOC; drop 100000000"
echo "$old" > /proc/sys/vm/min_free_kbytes
