//! The machine's files, and what its first process is told.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::Architecture;
use super::topology::{Settings, Topology};

/// A file of a machine.
pub struct File<'a> {
    /// Its path, without the root.
    pub path: &'a str,
    /// What is in it.
    pub content: &'a [u8],
}

/// The archive that the kernel unpacks.
pub fn image(files: &[File<'_>]) -> Vec<u8> {
    const FOLDER: u32 = 0o040_755;
    const PROGRAM: u32 = 0o100_755;
    let mut archive = Vec::new();
    let mut folders = BTreeSet::from(["proc", "sys", "dev", "tmp"]);
    for file in files {
        folders.extend(file.path.match_indices('/').map(|(at, _)| &file.path[..at]));
    }
    // In their order a folder comes before what is in it.
    for folder in folders {
        append(&mut archive, folder, FOLDER, &[]);
    }
    for file in files {
        append(&mut archive, file.path, PROGRAM, file.content);
    }
    append(&mut archive, "TRAILER!!!", 0, &[]);
    archive
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

/// The orders that capture what a kernel makes of its settings.
pub fn orders_to_capture(topology: &Topology, architecture: Architecture) -> String {
    let mut orders = format!("port {}\ncapture boot\n", architecture.port());
    // Writing to a string cannot fail.
    let _ = write_captures(&mut orders, topology);
    orders + "machine\n"
}

/// The orders that record a load as a bundle of this name.
pub fn orders_to_record(topology: &Topology, architecture: Architecture, name: &str) -> String {
    let mut orders = format!("port {}\n", architecture.port());
    let _ = write_settings(&mut orders, &topology.sysctl);
    if !topology.prepare.is_empty() {
        orders.push_str("load /prepare\n");
    }
    orders + &format!("record {name} /load\n")
}

fn write_captures(out: &mut String, topology: &Topology) -> std::fmt::Result {
    if !topology.sysctl.is_empty() {
        write_settings(out, &topology.sysctl)?;
        writeln!(out, "capture sysctl")?;
    }
    for (name, settings) in &topology.phases {
        for (key, value) in settings {
            writeln!(out, "keep {key}\nset {key} {value}")?;
        }
        writeln!(out, "capture phase_{name}")?;
        settings.iter().try_for_each(|(key, _)| writeln!(out, "restore {key}"))?;
    }
    if !topology.phases.is_empty() {
        // What was taken back last may have been one setting only: this makes all follow.
        for key in ["vm.min_free_kbytes", "vm.lowmem_reserve_ratio"] {
            writeln!(out, "rewrite {key}")?;
        }
        writeln!(out, "capture restored")?;
    }
    Ok(())
}

fn write_settings(out: &mut String, settings: &Settings) -> std::fmt::Result {
    settings.iter().try_for_each(|(key, value)| writeln!(out, "set {key} {value}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archives_are_padded() {
        let mut archive = Vec::new();
        append(&mut archive, "init", 0o100_755, b"12345");
        assert_eq!(archive.len(), 116 + 8);
        assert!(archive.starts_with(b"07070100000000000081ed"));
    }

    #[test]
    fn folders_come_before_what_is_in_them() {
        let archive = image(&[File { path: "lib/x/libc.so.6", content: b"1" }]);
        let text = String::from_utf8(archive).unwrap();
        let at = |name: &str| text.find(&format!("{name}\0")).unwrap();
        assert!(at("lib") < at("lib/x") && at("lib/x") < at("lib/x/libc.so.6"));
    }

    #[test]
    fn orders_set_capture_and_restore() {
        let topology = Topology::parse(
            r#"{"nodes": [{"mem": 1, "cpus": 1}], "sysctl": {"vm.stat_interval": "1"},
                "phases": {"low": {"vm.min_free_kbytes": "1024"}}, "prepare": ["sleep 1"]}"#,
        )
        .unwrap();
        assert_eq!(
            orders_to_capture(&topology, Architecture::X86_64),
            "port /dev/ttyS1\ncapture boot\nset vm.stat_interval 1\ncapture sysctl\n\
             keep vm.min_free_kbytes\nset vm.min_free_kbytes 1024\ncapture phase_low\n\
             restore vm.min_free_kbytes\nrewrite vm.min_free_kbytes\n\
             rewrite vm.lowmem_reserve_ratio\ncapture restored\nmachine\n"
        );
        assert_eq!(
            orders_to_record(&topology, Architecture::Aarch64, "q61-x"),
            "port /dev/ttyS0\nset vm.stat_interval 1\nload /prepare\nrecord q61-x /load\n"
        );
    }
}
