//! The machine's files: busybox and a script that captures and sends.

use std::fmt::Write;
use std::io;
use std::path::Path;

use super::topology::Topology;

/// Settings of each capture.
const SETTINGS: [&str; 8] = [
    "min_free_kbytes",
    "watermark_scale_factor",
    "watermark_boost_factor",
    "lowmem_reserve_ratio",
    "percpu_pagelist_high_fraction",
    "zone_reclaim_mode",
    "numa_zonelist_order",
    "stat_interval",
];

/// What begins the script: where things are sent, and how. Reading `lowmem_reserve_ratio` makes the
/// kernel compute its reserves anew, so zoneinfo comes first.
const HEAD: &str = r#"#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev 2>/dev/null
stty -F /dev/ttyS1 raw 2>/dev/null
exec 3>/dev/ttyS1
send() { printf '\n=== %s\n' "$1" >&3; cat "$2" >&3; }
send_if() { [ -f "$2" ] && send "$1" "$2"; }
capture() {
  for file in zoneinfo buddyinfo pagetypeinfo vmstat meminfo; do
    send "captures/$1/$file" "/proc/$file"
  done
  for key in $SETTINGS; do
    send_if "captures/$1/sysctl_vm/$key" "/proc/sys/vm/$key"
  done
}
"#;

/// What ends it: what does not change from capture to capture, and the log.
const TAIL: &str = r#"for file in version cmdline iomem cpuinfo; do send "sys/$file" "/proc/$file"; done
send_if sys/thp /sys/kernel/mm/transparent_hugepage/enabled
send sys/cpu_online /sys/devices/system/cpu/online
cd /sys/devices/system/node
for file in possible online has_normal_memory has_memory has_cpu; do send_if "sys/$file" "$file"; done
for node in node[0-9]*; do
  for file in cpulist distance meminfo numastat; do send "sys/$node/$file" "$node/$file"; done
done
cd /sys/devices/system/cpu
for index in cpu0/cache/index*; do
  for file in level type size shared_cpu_list; do
    send_if "sys/cache/${index##*/}/$file" "$index/$file"
  done
done
for cpu in cpu[0-9]*; do send_if "sys/llc/$cpu" "$cpu/cache/index3/shared_cpu_list"; done
dmesg > /log
send dmesg/raw /log
printf '\n=== end\n' >&3
poweroff -f
"#;

/// The archive that the kernel unpacks.
pub fn image(busybox: &Path, topology: &Topology) -> io::Result<Vec<u8>> {
    const FOLDER: u32 = 0o040_755;
    const PROGRAM: u32 = 0o100_755;
    let mut archive = Vec::new();
    for folder in ["bin", "proc", "sys", "dev"] {
        append(&mut archive, folder, FOLDER, &[]);
    }
    append(&mut archive, "bin/busybox", PROGRAM, &std::fs::read(busybox)?);
    append(&mut archive, "init", PROGRAM, script(topology).as_bytes());
    append(&mut archive, "TRAILER!!!", 0, &[]);
    Ok(archive)
}

/// Appends a file to an archive in cpio's `newc` format: a header of numbers in hexadecimal, the name and
/// the content, each padded to four bytes. `Documentation/driver-api/early-userspace/buffer-format.rst`.
fn append(archive: &mut Vec<u8>, name: &str, mode: u32, content: &[u8]) {
    let pad = |archive: &mut Vec<u8>| archive.resize(archive.len().next_multiple_of(4), 0);
    let links = 1;
    let numbers =
        [0, mode, 0, 0, links, 0, content.len() as u32, 0, 0, 0, 0, name.len() as u32 + 1, 0];
    archive.extend_from_slice(b"070701");
    for number in numbers {
        archive.extend_from_slice(format!("{number:08x}").as_bytes());
    }
    archive.extend_from_slice(name.as_bytes());
    archive.push(0);
    pad(archive);
    archive.extend_from_slice(content);
    pad(archive);
}

fn script(topology: &Topology) -> String {
    let mut text = HEAD.replace("$SETTINGS", &SETTINGS.join(" "));
    // Writing to a string cannot fail.
    let _ = write_captures(&mut text, topology);
    text + TAIL
}

fn write_captures(out: &mut String, topology: &Topology) -> std::fmt::Result {
    let path = |key: &str| format!("/proc/sys/{}", key.replace('.', "/"));
    writeln!(out, "capture boot")?;
    if !topology.sysctl.is_empty() {
        for (key, value) in &topology.sysctl {
            writeln!(out, "echo '{value}' > {}", path(key))?;
        }
        writeln!(out, "capture sysctl")?;
    }
    for (name, settings) in &topology.phases {
        for (index, (key, value)) in settings.iter().enumerate() {
            writeln!(out, "old{index}=$(cat {})", path(key))?;
            writeln!(out, "echo '{value}' > {}", path(key))?;
        }
        writeln!(out, "capture phase_{name}")?;
        for (index, (key, _)) in settings.iter().enumerate() {
            writeln!(out, "echo \"$old{index}\" > {}", path(key))?;
        }
    }
    if !topology.phases.is_empty() {
        // What was taken back last may have been one setting only: this makes all follow.
        for key in ["vm.min_free_kbytes", "vm.lowmem_reserve_ratio"] {
            writeln!(out, "old=$(cat {0}); echo \"$old\" > {0}", path(key))?;
        }
        writeln!(out, "capture restored")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archives_are_padded_and_scripts_restore() {
        let mut archive = Vec::new();
        append(&mut archive, "init", 0o100_755, b"12345");
        assert_eq!(archive.len(), 116 + 8);
        assert!(archive.starts_with(b"07070100000000000081ed"));
        let topology = Topology::parse(
            r#"{"nodes": [{"mem": 1, "cpus": 1}], "phases": {"low": {"vm.min_free_kbytes": "1024"}}}"#,
        )
        .unwrap();
        let script = script(&topology);
        let steps = [
            "capture boot\n",
            "old0=$(cat /proc/sys/vm/min_free_kbytes)\n",
            "echo '1024' > /proc/sys/vm/min_free_kbytes\n",
            "capture phase_low\n",
            "echo \"$old0\" > /proc/sys/vm/min_free_kbytes\n",
            "capture restored\n",
        ];
        let places: Vec<usize> = steps.iter().map(|step| script.find(step).unwrap()).collect();
        assert!(places.is_sorted(), "{script}");
        assert!(script.contains("for key in min_free_kbytes watermark_scale_factor "));
    }
}
