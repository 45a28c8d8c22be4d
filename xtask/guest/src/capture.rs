//! Captures of /proc and /sys, as the recordings of `oracle/` have them.

use std::fs;
use std::io;
use std::path::Path;

use crate::port::Port;

/// Files of each capture. Reading `lowmem_reserve_ratio` makes the kernel compute its reserves anew, so zoneinfo comes
/// before the settings.
const FILES: [&str; 5] = ["zoneinfo", "buddyinfo", "pagetypeinfo", "vmstat", "meminfo"];
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
const NODES: &str = "/sys/devices/system/node";
const CPUS: &str = "/sys/devices/system/cpu";

/// Sends what changes.
pub fn send_capture(port: &mut Port, name: &str) -> io::Result<()> {
    for file in FILES {
        let name = format!("captures/{name}/{file}");
        port.send(&name, &fs::read(Path::new("/proc").join(file))?)?;
    }
    for key in SETTINGS {
        let name = format!("captures/{name}/sysctl_vm/{key}");
        send_if_there(port, &name, &format!("/proc/sys/vm/{key}"))?;
    }
    Ok(())
}

/// Sends what does not change from capture to capture.
pub fn send_machine(port: &mut Port) -> io::Result<()> {
    for file in ["version", "cmdline", "iomem", "cpuinfo"] {
        send_if_there(port, &format!("sys/{file}"), &format!("/proc/{file}"))?;
    }
    send_if_there(port, "sys/thp", "/sys/kernel/mm/transparent_hugepage/enabled")?;
    send_if_there(port, "sys/cpu_online", &format!("{CPUS}/online"))?;
    for file in ["possible", "online", "has_normal_memory", "has_memory", "has_cpu"] {
        send_if_there(port, &format!("sys/{file}"), &format!("{NODES}/{file}"))?;
    }
    for node in numbered(NODES, "node") {
        for file in ["cpulist", "distance", "meminfo", "numastat"] {
            send_if_there(port, &format!("sys/{node}/{file}"), &format!("{NODES}/{node}/{file}"))?;
        }
    }
    let caches = format!("{CPUS}/cpu0/cache");
    for index in numbered(&caches, "index") {
        for file in ["level", "type", "size", "shared_cpu_list"] {
            let name = format!("sys/cache/{index}/{file}");
            send_if_there(port, &name, &format!("{caches}/{index}/{file}"))?;
        }
    }
    for cpu in numbered(CPUS, "cpu") {
        let path = format!("{CPUS}/{cpu}/cache/index3/shared_cpu_list");
        send_if_there(port, &format!("sys/llc/{cpu}"), &path)?;
    }
    Ok(())
}

fn send_if_there(port: &mut Port, name: &str, path: &str) -> io::Result<()> {
    match fs::read(path) {
        Ok(content) => port.send(name, &content),
        Err(_) => Ok(()),
    }
}

/// What of a folder has a name of this word and a number, sorted.
fn numbered(folder: &str, word: &str) -> Vec<String> {
    let is_it = |name: &String| {
        let rest = name.strip_prefix(word);
        rest.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(is_it).collect();
    names.sort();
    names
}
