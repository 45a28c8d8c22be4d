#!/bin/sh
# The first process of a guest: carries out the scenarios of a topology, each between two marks in the log.
mount -t proc none /proc; mount -t sysfs none /sys; mount -t devtmpfs none /dev
mkdir -p /cg && mount -t cgroup2 none /cg
echo "+memory +cpuset" > /cg/cgroup.subtree_control
echo never > /sys/kernel/mm/transparent_hugepage/enabled
echo -1000 > /proc/self/oom_score_adj
fault() { echo "$*" > /proc/fault || echo "fault: $*: failed" > /dev/kmsg; }
say() { echo "$*" > /dev/kmsg; }
# The program is killed before this shell is, and its pages come back.
hog() { (echo 1000 > /proc/self/oom_score_adj; exec /hog "$@") & wait $!; }
in_group() { group=$1; shift; (echo 1000 > /proc/self/oom_score_adj; sh -c 'echo $$ > /cg/'"$group"'/cgroup.procs; exec "$@"' sh "$@") & wait $!; }
say "nearpage: kernel $(uname -r)"
for scenario in /scenarios/*.sh; do
    name=$(basename "$scenario" .sh)
    # The kernel prints one failure in ten seconds.
    sleep 11
    insmod /fault.ko
    say "nearpage: begin $name"
    # In a shell of its own: what it sets ends with it, but for sysctls, which it restores.
    . "$scenario"
    sleep 1
    say "nearpage: end $name"
    rmmod fault
done
say "nearpage: done"
sleep 1
poweroff -f
