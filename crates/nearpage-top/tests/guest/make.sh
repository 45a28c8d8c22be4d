#!/usr/bin/env bash
# Makes docs/src/examples/two-nodes.tape anew: make.sh KERNEL OUT
#
# A guest with 4 GiB on one node and 1 GiB on another, in which a program and files fill the small one. Needs qemu-system-x86,
# busybox-static, cpio, gcc, and `cargo build --release --target x86_64-unknown-linux-musl -p nearpage-cli`.
set -euo pipefail
kernel=$1 out=$2
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/root/{bin,proc,sys,dev}
gcc -O1 -static -o "$work/root/slowly" "$here/slowly.c"
cp "$(command -v busybox)" "$work/root/bin/"
for tool in sh mount umount mkdir echo sleep poweroff dd base64 kill; do ln -s busybox "$work/root/bin/$tool"; done
cp "$here/../../../../target/x86_64-unknown-linux-musl/release/nearpage" "$work/root/"
install -m 755 "$here/init.sh" "$work/root/init"
(cd "$work/root" && find . | cpio -o -H newc --quiet) > "$work/root.cpio"
timeout "${SECONDS_MOST:-600}" qemu-system-x86_64 -accel "${ACCEL:-tcg,thread=multi}" -cpu max,arch-capabilities=off -display none -nodefaults -no-reboot -net none \
    -m 5120M -smp 4 -object memory-backend-ram,id=m0,size=4096M -object memory-backend-ram,id=m1,size=1024M \
    -numa node,nodeid=0,cpus=0-1,memdev=m0 -numa node,nodeid=1,cpus=2-3,memdev=m1 \
    -kernel "$kernel" -initrd "$work/root.cpio" -append "console=ttyS0 panic=-1 no_timer_check nokaslr ${APPEND:-quiet}" \
    -chardev "file,id=c0,path=${LOG:-$work/log}" -serial chardev:c0 || true
tr -d '\r' < "${LOG:-$work/log}" | sed -n '/^begin of the tape/,/^end of the tape/p' | sed '1d;$d' | base64 -d > "$out"
