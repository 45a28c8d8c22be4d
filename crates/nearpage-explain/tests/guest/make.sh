#!/usr/bin/env bash
# Makes the reports anew: make.sh KERNEL-FOLDER RELEASE OUT
#
# KERNEL-FOLDER has boot/vmlinuz-RELEASE of Debian's linux-image-RELEASE, unpacked; /usr/src has linux-headers-RELEASE.
# Needs gcc, make, qemu-system-x86, busybox-static, cpio. Each scenario's first lines say on which machine it runs
# (`# machine: two`), and what is true of its report.
set -euo pipefail
folder=$1 release=$2 out=$3
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
# Names in ONLY and MACHINES choose among scenarios and machines. A guest on a busy machine may fail to boot.
trap 'rm -rf "$work"' EXIT

declare -A machines=(
    # Two nodes of 512 MiB: all of it DMA and DMA32.
    [two]="-m 1024M -smp 2 -object memory-backend-ram,id=m0,size=512M -object memory-backend-ram,id=m1,size=512M -numa node,nodeid=0,cpus=0,memdev=m0 -numa node,nodeid=1,cpus=1,memdev=m1"
    # Three nodes of 768, 384 and 256 MiB, the last without CPUs.
    [three]="-m 1408M -smp 2 -object memory-backend-ram,id=m0,size=768M -object memory-backend-ram,id=m1,size=384M -object memory-backend-ram,id=m2,size=256M -numa node,nodeid=0,cpus=0,memdev=m0 -numa node,nodeid=1,cpus=1,memdev=m1 -numa node,nodeid=2,memdev=m2"
    # DMA32 of 3 GiB and Normal of 2 GiB on one node, 1 GiB on another.
    [six]="-m 6144M -smp 2 -object memory-backend-ram,id=m0,size=5120M -object memory-backend-ram,id=m1,size=1024M -numa node,nodeid=0,cpus=0,memdev=m0 -numa node,nodeid=1,cpus=1,memdev=m1"
    # DMA32 of 3 GiB and Normal of 1 GiB on one node, 1 GiB on another.
    [five]="-m 5120M -smp 2 -object memory-backend-ram,id=m0,size=4096M -object memory-backend-ram,id=m1,size=1024M -numa node,nodeid=0,cpus=0,memdev=m0 -numa node,nodeid=1,cpus=1,memdev=m1"
)

mkdir -p "$work/module" "$out"
cp "$here/fault.c" "$work/module/"
echo 'obj-m := fault.o' > "$work/module/Makefile"
# Without type information, which would need pahole.
make -s -C "/usr/src/linux-headers-$release" M="$work/module" CONFIG_DEBUG_INFO_BTF_MODULES= modules
gcc -O1 -static -o "$work/hog" "$here/hog.c"
run() {
    local machine=$1 root scenario name
    root=$work/$machine
    mkdir -p "$root"/{bin,proc,sys,dev,scenarios}
    cp "$(command -v busybox)" "$root/bin/"
    for tool in sh mount mkdir echo sleep basename uname insmod rmmod poweroff cat dd rmdir seq; do ln -s busybox "$root/bin/$tool"; done
    cp "$work/module/fault.ko" "$work/hog" "$root/"
    cp "$here/init.sh" "$root/init"
    chmod +x "$root/init"
    (cd "$here/scenarios" && grep -l "^# machine: $machine\$" $(printf "%s.sh " ${ONLY:-*})) | sed "s|^|$here/scenarios/|" | xargs -I{} cp {} "$root/scenarios/" || return 0
    (cd "$root" && find . | cpio -o -H newc --quiet) > "$work/$machine.cpio"
    timeout "${SECONDS_MOST:-900}" qemu-system-x86_64 -accel "${ACCEL:-tcg,thread=multi}" -cpu max -display none -nodefaults -no-reboot -net none \
        ${machines[$machine]} -kernel "$folder/boot/vmlinuz-$release" -initrd "$work/$machine.cpio" \
        -append "console=ttyS0 panic=-1 no_timer_check nokaslr log_buf_len=4M loglevel=8 numa_balancing=disable init_on_alloc=0" \
        -chardev "file,id=c0,path=$work/$machine.log" -serial chardev:c0 || true
    tr -d '\r' < "$work/$machine.log" > "$out/$machine.console"
    for scenario in "$root"/scenarios/*.sh; do
        name=$(basename "$scenario" .sh)
        sed -n "/nearpage: begin $name\$/,/nearpage: end $name\$/p" "$out/$machine.console" > "$out/$name.log"
    done
}
for machine in ${MACHINES:-two three five six}; do run "$machine" & done
wait
