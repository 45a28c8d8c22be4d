#!/bin/sh
# Records what the page allocator of this machine does while a command runs, as `nearpage record` does, with
# nothing but a POSIX shell, coreutils (or busybox), awk and tar. Needs root and tracefs.
#
#   sh record.sh [-o PATH] [--slab] [--lock] [--duration T] -- CMD...
#   sh record.sh [...] --pid PID [--duration T]
#   sh record.sh [...] --duration T
#
#   -o PATH       the bundle (default: nearpage-CMD.tar.zst; without zstd: .tar.gz)
#   --slab        record the slab, too: ten times as many events
#   --lock        record contention of locks, too
#   --duration T  end the recording, and the command, after T: 500ms, 10s, 2m, 1h
#   --user USER   run the command as this user (default: who called sudo, doas or pkexec, but su does not say who
#                 called it; --user root: as root)
#   --pid PID     record until this process ends, which is not disturbed
#
# The bundle holds names of tasks, the kernel's command line and log, addresses of the kernel, and the first 64 KiB
# that the command printed. Only its owner may read it: who called sudo, in folders of that user.
# Exit status: that of the command; 2 if nothing was recorded.
set -u
LC_ALL=C
export LC_ALL

die() {
    echo "record.sh: $*" >&2
    exit 2
}
usage() { sed -n '2,19s/^# \{0,1\}//p' "$0"; }
have() { command -v "$1" >/dev/null 2>&1; }
# A text as JSON.
quoted() { printf '%s\n' "$1" | tr '\n\t\r' '   ' | sed 's/ $//; s/\\/\\\\/g; s/"/\\"/g; s/^/"/; s/$/"/'; }

# --- what is asked for ---------------------------------------------------------------------------
out='' slab=0 lock=0 seconds='' pid='' user=''
while [ $# -gt 0 ]; do
    case $1 in
    -o | --output)
        [ $# -ge 2 ] || die "$1: expected a path"
        out=$2
        shift
        ;;
    --slab) slab=1 ;;
    --lock) lock=1 ;;
    --duration)
        [ $# -ge 2 ] || die "$1: expected a time: 500ms, 10s, 2m, 1h"
        seconds=$(printf '%s\n' "$2" | awk '
            /^[0-9]+([.][0-9]+)?(ms|s|m|h)$/ {
                unit = $0; sub(/^[0-9.]+/, "", unit)
                by = unit == "ms" ? 0.001 : unit == "s" ? 1 : unit == "m" ? 60 : 3600
                if ($0 + 0 > 0) printf "%.3f", ($0 + 0) * by
            }')
        [ -n "$seconds" ] || die "--duration $2: expected a number above 0 and ms, s, m or h: 500ms, 10s"
        shift
        ;;
    --pid)
        [ $# -ge 2 ] || die "$1: expected the number of a process"
        pid=$2
        [ -d "/proc/$pid" ] || die "there is no process $pid"
        shift
        ;;
    --user)
        [ $# -ge 2 ] || die "$1: expected the name of a user"
        user=$2
        id -u "$user" >/dev/null 2>&1 || die "--user $user: there is no such user"
        shift
        ;;
    -h | --help)
        usage
        exit 0
        ;;
    --)
        shift
        break
        ;;
    *) die "$1: unknown; expected -o PATH, --slab, --lock, --duration T, --user USER, --pid PID, then -- CMD..." ;;
    esac
    shift
done
if [ -n "$pid" ]; then
    [ $# = 0 ] || die "--pid and a command: expected one of them"
    what=$(cat "/proc/$pid/comm")
elif [ $# = 0 ]; then
    [ -n "$seconds" ] || die "no command; expected -- CMD..., --pid PID or --duration T"
    what=machine
else
    command -v "$1" >/dev/null 2>&1 || die "$1: no such program"
    case $1 in */*) [ -f "$1" ] && [ -x "$1" ] || die "$1: is not executable" ;; esac
    what=${1##*/}
fi
if have zstd; then ending=tar.zst pack='zstd -q -9' packed=zst; else ending=tar.gz pack='gzip -9' packed=gz; fi
# A process chooses its own name.
[ -n "$out" ] || out=nearpage-$(printf '%s' "$what" | tr -c 'A-Za-z0-9._+-' _).$ending
[ ! -d "$out" ] || die "$out: is a folder; expected a name for the bundle"
[ ! -s "$out" ] || die "$out: exists and is not empty; remove it, or give another name with -o"
folder=.
case $out in */*) folder=${out%/*} ;; esac
[ -d "${folder:-/}" ] || die "$out: there is no folder $folder; make it first (mkdir -p)"
[ "$(id -u)" = 0 ] || die "needs root (tracefs, /proc/pagetypeinfo, /proc/slabinfo): sudo sh $0 ..."
name=${out##*/}
name=${name%.tar.*}
# Who called sudo, pkexec or doas.
caller=
for caller_uid in "${SUDO_UID:-0}" "${PKEXEC_UID:-0}" "$(id -u "${DOAS_USER:-root}" 2>/dev/null || echo 0)"; do
    [ "$caller_uid" = 0 ] || break
done
if [ "$caller_uid" != 0 ]; then
    caller_gid=$(id -g "$caller_uid" 2>/dev/null || echo "$caller_uid")
    [ "$caller_uid" != "${SUDO_UID:-0}" ] || caller_gid=${SUDO_GID:-$caller_gid}
    caller=$caller_uid:$caller_gid
fi
# The command runs as that user, or as --user, without rights or secrets of root, and without this terminal.
as=
[ -n "$user" ] || [ -z "$caller" ] || user=$caller_uid
if [ $# != 0 ] && [ -n "$user" ] && [ "$(id -u "$user" 2>/dev/null || echo "$user")" != 0 ]; then
    uid=$(id -u "$user" 2>/dev/null || echo "$user")
    gid=$(id -g "$user" 2>/dev/null || echo "${caller_gid:-$uid}")
    groups=$(id -G "$user" 2>/dev/null | tr ' ' ,)
    home=$(awk -F: -v u="$uid" '$3 == u { print $6; exit }' /etc/passwd)
    login=$(id -un "$uid" 2>/dev/null || echo "$uid")
    have setsid ||
        die "no setsid of util-linux, without which the command of $user could type into this terminal; --user root runs it as root"
    if setpriv --reuid="$uid" --regid="$gid" --groups="${groups:-$gid}" true 2>/dev/null; then
        as="setsid setpriv --reuid=$uid --regid=$gid --groups=${groups:-$gid}"
    elif chroot --userspec="$uid:$gid" --groups="${groups:-$gid}" --skip-chdir / true 2>/dev/null; then
        as="setsid chroot --userspec=$uid:$gid --groups=${groups:-$gid} --skip-chdir /"
    else
        die "no setpriv of util-linux and no chroot of coreutils, by which the command would run as $user; --user root runs it as root"
    fi
    [ "$uid" != "$caller_uid" ] ||
        echo "record.sh: the command runs as user $uid, who called sudo; --user root runs it as root" >&2
fi
# Becomes the command.
run() {
    umask "$mask"
    [ -n "$as" ] || exec "$@"
    set -- "HOME=${home:-/}" "USER=$login" "LOGNAME=$login" "$@"
    # shellcheck disable=SC2086 # A command and its options.
    if [ "$uid" = "$caller_uid" ]; then
        exec $as env -u DOAS_USER -u PKEXEC_UID -u SUDO_COMMAND -u SUDO_GID -u SUDO_HOME -u SUDO_UID -u SUDO_USER -u MAIL "$@"
    fi
    exec $as env -i "PATH=$PATH" "TERM=${TERM:-dumb}" "LANG=${LANG:-C}" "$@"
}
# What is made is root's alone until it is given away; a name that somebody else made is not written to.
mask=$(umask)
umask 077

# --- a trace instance of our own, removed however this ends ---------------------------------------
T=/sys/kernel/tracing
if [ ! -d $T/instances ] && [ ! -d /sys/kernel/debug/tracing/instances ]; then
    mount -t tracefs nodev $T 2>/dev/null || die "no tracefs at $T, and it cannot be mounted: in a container, record on the host"
    echo "record.sh: mounted tracefs at $T; it stays" >&2
fi
[ -d $T/instances ] || T=/sys/kernel/debug/tracing
[ -d $T/instances ] || die "no tracefs with instances: the kernel needs CONFIG_TRACING"

work=
for d in /dev/shm /run /tmp; do
    if [ -d $d ] && [ -w $d ]; then
        work=$(mktemp -d $d/nearpage.XXXXXX) || die "cannot make a folder in $d"
        break
    fi
done
[ -n "$work" ] || die "no folder for scratch files: /dev/shm, /run or /tmp"
b=$work/$name
I=$T/instances/nearpage.$$
mkdir "$b" "$b/before" "$b/cmdend" "$b/after" || die "cannot make $b"
running='' probes=0 made=
cleanup() {
    trap - EXIT
    for p in $running; do kill "$p" 2>/dev/null; done
    {
        [ -d "$I" ] && echo 0 >"$I/tracing_on" && echo 0 >"$I/events/enable" && rmdir "$I"
        if [ $probes = 1 ]; then
            echo "-:nearpage$$/nearpage_bulk_done" >>$T/kprobe_events
            echo "-:nearpage$$/nearpage_bulk" >>$T/kprobe_events
        fi
    } 2>/dev/null
    rm -rf "$work"
    [ -z "$made" ] || [ -s "$bundle" ] || ! is_bundle || rm -f "$place"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP
trap 'exit 131' QUIT
trap 'exit 134' ABRT
# The folder and the file stay open, and are used by their descriptors: the command's user may exchange their names for links.
command exec 7<"${folder:-/}" || die "$out: its folder cannot be read"
place=/proc/$$/fd/7/${out##*/}
bundle=/proc/$$/fd/8
is_bundle() { [ "$(stat -c %d:%i "$place" 2>/dev/null)" = "$(stat -L -c %d:%i $bundle)" ]; }
if [ -e "$place" ] || [ -h "$place" ]; then
    [ -f "$place" ] && [ ! -h "$place" ] && command exec 8<"$place" || die "$out: is not a file; give another name with -o"
    owner=$(stat -L -c %u $bundle)
    [ "$owner" = 0 ] || [ "$owner" = "$caller_uid" ] || die "$out: is not a file of this user; give another name with -o"
else
    set -C
    command exec 8>"$place" || die "$out: cannot be written"
    set +C
    made=1
fi
[ -f $bundle ] && [ ! -s $bundle ] && is_bundle || die "$out: was replaced; give another name with -o"
command exec 8>>$bundle || die "$out: cannot be written"
mkdir "$I" || die "cannot make $I"

cpus=$(grep -c '^processor' /proc/cpuinfo)
memory_kb=$(sed -n 's/^MemTotal: *\([0-9]*\).*/\1/p' /proc/meminfo)
kb=$((memory_kb / 32 / cpus))
[ $kb -ge 2048 ] || kb=2048
[ $kb -le 131072 ] || kb=131072
echo 0 >"$I/tracing_on"
echo mono >"$I/trace_clock" || die "this kernel has no clock mono"
until echo $kb >"$I/buffer_size_kb"; do
    [ $kb -gt 2048 ] || die "no memory for $kb KB of trace buffer per CPU"
    kb=$((kb / 2))
done 2>/dev/null
# A full buffer loses the newest events.
echo 0 >"$I/options/overwrite"

release=$(uname -r)
# since MAJOR MINOR: whether the kernel is that or later.
since() {
    major=${release%%.*}
    rest=${release#*.}
    minor=${rest%%[!0-9]*}
    [ "$major" -gt "$1" ] || { [ "$major" -eq "$1" ] && [ "${minor:-0}" -ge "$2" ]; }
}
raw=0
# Before 6.12 the texts of flags are lost with raw pointers.
if since 6 12 && echo 0 >"$I/options/hash-ptr"; then raw=1; fi 2>/dev/null

enabled=
enable() {
    [ -e "$I/events/$1/enable" ] && echo 1 >"$I/events/$1/enable" && enabled="$enabled $(echo "$1" | tr / :)"
} 2>/dev/null
for e in alloc free free_batched alloc_zone_locked pcpu_drain alloc_extfrag; do
    enable kmem/mm_page_$e || die "this kernel has no event kmem:mm_page_$e, without which a trace cannot be replayed"
done
enable sched/sched_process_fork
enable sched/sched_process_exit
# When a CPU does its once-a-second work: of all works this one alone.
upkeep=$(sed -n 's/^\([0-9a-f]*[1-9a-f][0-9a-f]*\) . vmstat_update$/\1/p' /proc/kallsyms 2>/dev/null)
if [ -n "$upkeep" ] && echo "function == 0x$upkeep" >"$I/events/workqueue/workqueue_execute_start/filter"; then
    enable workqueue/workqueue_execute_start
fi 2>/dev/null
if [ $lock = 1 ]; then
    enable lock/contention_begin
    enable lock/contention_end
fi
if [ $slab = 1 ]; then
    for e in kmem_cache_alloc kmem_cache_free kmalloc kfree kmalloc_node kmem_cache_alloc_node; do enable kmem/$e; done
fi
# Pages allocated in bulk have no event: where the kernel allows probes, these two tell them.
probe() { echo "$1" >>$T/kprobe_events; } 2>/dev/null
array=6
since 6 16 && array=5
pages=
for i in 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do pages="$pages p$i=+$((8 * i))(\$arg$array):x64"; done
for f in alloc_pages_bulk_noprof __alloc_pages_bulk; do
    [ -e $T/kprobe_events ] || break
    probe "p:nearpage$$/nearpage_bulk $f gfp=\$arg1:x32 nid=\$arg2:s32 nr=\$arg4:s32" || continue
    probes=1
    probe "r:nearpage$$/nearpage_bulk_done $f n=\$retval:s32$pages" ||
        probe "r:nearpage$$/nearpage_bulk_done $f n=\$retval:s32"
    enable nearpage$$/nearpage_bulk
    enable nearpage$$/nearpage_bulk_done
    break
done

# --- captures ------------------------------------------------------------------------------------
mark() { echo "nearpage: $*" >"$I/trace_marker"; }

# What changes slowly, read while tracing is off. Lines of sysfs are PATH:LINE; an empty file has none.
surroundings() {
    for f in version cmdline iomem; do cat /proc/$f >"$1/$f" 2>/dev/null; done
    for f in /proc/sys/vm/*; do
        [ -f "$f" ] && [ "${f##*/}" != stat_refresh ] && v=$(cat "$f" 2>/dev/null) && echo "vm.${f##*/} = $v"
    done >"$1/sysctl"
    {
        d=/sys/devices/system
        grep -H '' $d/node/has_* $d/node/online $d/node/possible
        for n in "$d"/node/node[0-9]*; do
            grep -H '' "$n/cpulist" "$n/distance" "$n/meminfo" "$n/numastat" "$n/vmstat"
            grep -H '' "$n"/access*/initiators/*_* "$n"/access*/targets/*_*
        done
        grep -H '' $d/cpu/online $d/cpu/possible $d/cpu/present
        for c in "$d"/cpu/cpu[0-9]*; do grep -H '' "$c"/topology/* "$c"/cache/index*/[!u]*; done
        d=/sys/kernel/mm
        grep -H '' $d/transparent_hugepage/enabled $d/transparent_hugepage/defrag $d/lru_gen/enabled
        grep -H '' /sys/devices/system/memory/block_size_bytes $d/mempolicy/weighted_interleave/node*
        grep -H '' /sys/module/page_alloc/parameters/* /sys/module/page_reporting/parameters/*
    } >"$1/sysfs" 2>/dev/null
}

# What changes with every allocation, read by one process that already runs: it waits on a fifo until the marker
# is written, and writes over pages that its file already has.
hot='zoneinfo buddyinfo pagetypeinfo vmstat zoneinfo.again slabinfo meminfo'
for f in $hot end; do echo "==> $f" >"$work/sep.$f"; done
first=
for f in "chrt -f 1" "nice -n -20"; do
    if $f true 2>/dev/null; then
        first=$f
        break
    fi
done
arm() {
    mkfifo "$work/go.$1"
    dd if=/dev/zero of="$work/$1.snap" bs=65536 count=16 2>/dev/null
    files=
    for f in $hot; do files="$files $work/sep.$f /proc/${f%.again}"; done
    # shellcheck disable=SC2086 # Several words each.
    $first cat "$work/go.$1" $files "$work/sep.end" 1<>"$work/$1.snap" 2>/dev/null &
    armed=$!
    running="$running $armed"
}
fire() {
    mark "$1 begin"
    echo "nearpage $1" >"$work/go.$1"
    wait "$2"
    mark "$1 end"
}
split() {
    tr -d '\000' <"$work/$1.snap" |
        awk -v d="$b/$1" '$1 == "==>" { f = ($2 == "end") ? "" : d "/" $2; next } f != "" { print > f }'
}
# Half a second apart; each between two markers.
sampler() {
    k=0
    mkfifo "$work/go.s"
    while [ ! -e "$work/stop" ]; do
        # shellcheck disable=SC2086
        $first cat "$work/go.s" /proc/zoneinfo >>"$work/samples.txt" 2>/dev/null &
        reader=$!
        sleep 0.5
        if [ -e "$work/stop" ]; then
            kill $reader
            break
        fi
        k=$((k + 1))
        mark "sample $k begin"
        echo "# sample $k uptime $(cut -d' ' -f1 /proc/uptime)" >"$work/go.s"
        wait $reader
        mark "sample $k end"
    done
}

# --- the recording -------------------------------------------------------------------------------
surroundings "$b/before"
dmesg >"$b/before/dmesg" 2>/dev/null
logged=$(wc -l <"$b/before/dmesg")
arm before
before=$armed
arm cmdend
cmdend=$armed
arm after
after=$armed
# Folds counters of CPUs into those of zones.
echo 1 >/proc/sys/vm/stat_refresh 2>/dev/null
sleep 0.3
t0=$(date +%s)
u0=$(cut -d' ' -f1 /proc/uptime)
echo 1 >"$I/tracing_on"
fire before "$before"
sampler &
sampling=$!
running="$running $sampling"
mark "cmd begin"
stopped=
# Of what is no command, this waits for the end.
watch() {
    while [ -z "$pid" ] || kill -0 "$pid"; do sleep 0.2; done
}
if [ $# = 0 ]; then
    watch >"$b/cmd.txt" 2>/dev/null </dev/null &
else
    run "$@" >"$b/cmd.txt" 2>&1 </dev/null 7<&- 8>&- &
fi
command=$!
stop() {
    stopped=$1
    kill "$command" 2>/dev/null
}
trap 'stop 130' INT
trap 'stop 143' TERM
trap 'stop 129' HUP
trap 'stop 131' QUIT
if [ -n "$seconds" ]; then
    { sleep "$seconds" && : >"$work/over" && kill "$command"; } 2>/dev/null &
    clock=$!
    running="$running $clock"
fi
wait "$command"
rc=$?
# A signal ends the wait before the command: it is waited for again.
while kill -0 "$command" 2>/dev/null; do
    wait "$command"
    rc=$?
done
# The end of the time is none of a command's.
[ $# != 0 ] || rc=0
mark "cmd end rc=$rc"
fire cmdend "$cmdend"
sleep 1
fire after "$after"
: >"$work/stop"
echo 0 >"$I/tracing_on"
t1=$(date +%s)
u1=$(cut -d' ' -f1 /proc/uptime)
wait "$sampling" 2>/dev/null
for s in before cmdend after; do split $s; done
surroundings "$b/after"
dmesg 2>/dev/null | tail -n +$((logged + 1)) >"$b/after/dmesg.new"
cat "$I/trace" >"$b/trace.txt"
[ ! -f "$work/samples.txt" ] || mv "$work/samples.txt" "$b/samples.txt"
head -c 65536 "$b/cmd.txt" >"$work/cmd.txt"
mv "$work/cmd.txt" "$b/cmd.txt"

# --- meta.json -----------------------------------------------------------------------------------
node_list() { cat "/sys/devices/system/node/$1" 2>/dev/null || echo 0; }
list() {
    c=
    for w in "$@"; do
        printf '%s%s' "$c" "$(quoted "$w")"
        c=', '
    done
}
lost=0
{
    echo '{'
    echo '  "format": "nearpage-bundle 1",'
    printf '  "name": %s,\n  "note": "",\n' "$(quoted "$name")"
    printf '  "kernel": %s,\n  "version": %s,\n' "$(quoted "$release")" "$(quoted "$(cat /proc/version)")"
    printf '  "arch": %s,\n  "page_size": %s,\n' "$(quoted "$(uname -m)")" "$(getconf PAGESIZE 2>/dev/null || echo 4096)"
    printf '  "clock": "mono",\n  "cpus": %s,\n' "$cpus"
    printf '  "cpus_online": %s,\n' "$(quoted "$(cat /sys/devices/system/cpu/online)")"
    printf '  "nodes_online": %s,\n' "$(quoted "$(node_list online)")"
    printf '  "nodes_with_memory": %s,\n' "$(quoted "$(node_list has_memory)")"
    printf '  "mem_total_kb": %s,\n  "command": [%s],\n' "$memory_kb" "$(list "$@")"
    [ -z "$pid" ] || printf '  "pid": %s,\n' "$pid"
    printf '  "exit_status": %s,\n  "start_epoch": %s,\n  "end_epoch": %s,\n' "$rc" "$t0" "$t1"
    printf '  "start_uptime": %s,\n  "end_uptime": %s,\n' "$u0" "$u1"
    printf '  "sample_every_s": 0.5,\n  "tail_s": 1,\n  "streamed": 0,\n  "raw_pointers": %s,\n' $raw
    printf '  "recorder_pid": %s,\n  "snapshots": ["before", "cmdend", "after"],\n' $$
    # shellcheck disable=SC2086 # A list of names.
    printf '  "buffer_kb_per_cpu": %s,\n  "events_enabled": [%s],\n  "per_cpu": {' $kb "$(list $enabled)"
    c=
    for s in "$I"/per_cpu/cpu*/stats; do
        n=${s%/stats}
        # shellcheck disable=SC2046 # Six numbers.
        set -- $(awk -F': *' '{ v[$1] = $2 } END {
            print v["entries"], v["overrun"], v["commit overrun"], v["dropped events"], v["read events"], v["bytes"] }' "$s")
        [ $(($1 + $2 + $3 + $4 + $5)) != 0 ] || continue
        lost=$((lost + $2 + $3 + $4))
        printf '%s\n    "%s": {"entries": %s, "overrun": %s, "commit_overrun": %s, "dropped": %s, "read": %s, "bytes": %s}' \
            "$c" "${n##*/cpu}" "$@"
        c=,
    done
    printf '\n  },\n  "lost_events": %s,\n  "event_counts": {' $lost
    awk '
        /^#/ { next }
        match($0, /[0-9]: [a-z0-9_]+: /) { count[substr($0, RSTART + 3, RLENGTH - 5)]++; lines++; next }
        /LOST [0-9]+ EVENTS/ { lost++ }
        END {
            for (name in count) { printf "%s\n    \"%s\": %d", comma, name, count[name]; comma = "," }
            printf "\n  },\n  \"event_lines\": %d,\n  \"lost_lines\": %d,\n", lines, lost
        }' "$b/trace.txt"
    printf '  "trace_bytes": %s\n}\n' $(($(wc -c <"$b/trace.txt")))
} >"$b/meta.json"

# --- the bundle ----------------------------------------------------------------------------------
for f in trace samples; do
    [ ! -f "$b/$f.txt" ] || { $pack <"$b/$f.txt" >"$b/$f.txt.$packed" && rm "$b/$f.txt"; } || die "cannot pack $f.txt"
done
(cd "$work" && tar cf bundle.tar "$name") || die "cannot make the archive"
$pack <"$work/bundle.tar" >&8 || die "$out: cannot be written"
is_bundle || die "$out: was removed or replaced while the command ran; the bundle is lost"
# Who called sudo gets it where that user could have made it.
holder=$(stat -c '%u %a' /proc/$$/fd/7/.)
case $holder in "${caller_uid} "* | *" 1777") [ -z "$caller" ] || chown "$caller" $bundle ;; esac
[ ! -e "$work/over" ] || [ -n "$stopped" ] || rc=0
echo "$out: whole; next: nearpage replay $out"
[ $lost = 0 ] || echo "record.sh: $lost events LOST: record less, a shorter time or without --slab and --lock" >&2
[ -z "$stopped" ] || echo "record.sh: interrupted; the bundle holds what happened until then" >&2
exit "${stopped:-$rc}"
