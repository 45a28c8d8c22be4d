#!/bin/sh
# The first process of a guest: records what happens while a program fills a node, and files take the rest.
mount -t proc none /proc; mount -t sysfs none /sys; mount -t devtmpfs none /dev
echo never > /sys/kernel/mm/transparent_hugepage/enabled
echo 1 > /proc/sys/vm/zone_reclaim_mode
/nearpage top --record /top.tape > /dev/null &
recorder=$!
sleep 8
/slowly 700 1 20 &
sleep 25
mkdir /files; mount -t tmpfs -o size=1G,mpol=prefer:1 none /files
dd if=/dev/zero of=/files/one bs=1M count=400
sleep 12
umount /files
sleep 8
kill $recorder
wait $recorder
echo "begin of the tape"
base64 /top.tape
echo "end of the tape"
poweroff -f
