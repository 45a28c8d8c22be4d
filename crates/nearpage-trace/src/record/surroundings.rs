//! What changes slowly: settings, nodes, CPUs.

use std::fs;
use std::path::{Path, PathBuf};

/// Files that are copied from /proc.
const COPIES: [&str; 3] = ["version", "cmdline", "iomem"];
/// Settings that do something when read.
const NOT_READ: [&str; 1] = ["stat_refresh"];

const NODES: &str = "/sys/devices/system/node";
const CPUS: &str = "/sys/devices/system/cpu";
const NODE_FILES: [&str; 5] = ["cpulist", "distance", "meminfo", "numastat", "vmstat"];
const MORE: [&str; 4] = [
    "/sys/kernel/mm/transparent_hugepage/enabled",
    "/sys/kernel/mm/transparent_hugepage/defrag",
    "/sys/kernel/mm/lru_gen/enabled",
    "/sys/devices/system/memory/block_size_bytes",
];

/// Files of a capture, by name.
pub(super) fn read() -> Vec<(&'static str, Vec<u8>)> {
    let copy = |name| Some((name, fs::read(Path::new("/proc").join(name)).ok()?));
    let mut files: Vec<_> = COPIES.into_iter().filter_map(copy).collect();
    files.push(("sysctl", settings(Path::new("/proc/sys/vm")).into_bytes()));
    files.push(("sysfs", system().into_bytes()));
    files
}

/// Lines `vm.KEY = VALUE`.
fn settings(folder: &Path) -> String {
    let mut text = String::new();
    for path in names_in(folder, |name| !NOT_READ.contains(&name)) {
        if let (Some(name), Ok(value)) = (path.file_name(), fs::read_to_string(&path)) {
            let name = name.to_string_lossy();
            text.push_str(&format!("vm.{name} = {}\n", value.trim_end_matches('\n')));
        }
    }
    text
}

/// Lines `PATH:LINE`, as grep prints them.
fn system() -> String {
    let mut text = String::new();
    let mut add = |path: &Path| push_lines(&mut text, path);
    let nodes = Path::new(NODES);
    names_in(nodes, |name| name.starts_with("has_")).iter().for_each(|path| add(path));
    ["online", "possible"].iter().for_each(|name| add(&nodes.join(name)));
    for node in names_in(nodes, |name| is_numbered(name, "node")) {
        NODE_FILES.iter().for_each(|name| add(&node.join(name)));
        for access in names_in(&node, |name| is_numbered(name, "access")) {
            for side in ["initiators", "targets"] {
                let is_figure = |name: &str| name.contains('_');
                names_in(&access.join(side), is_figure).iter().for_each(|path| add(path));
            }
        }
    }
    let cpus = Path::new(CPUS);
    ["online", "possible", "present"].iter().for_each(|name| add(&cpus.join(name)));
    for cpu in names_in(cpus, |name| is_numbered(name, "cpu")) {
        names_in(&cpu.join("topology"), |_| true).iter().for_each(|path| add(path));
        for index in names_in(&cpu.join("cache"), |name| is_numbered(name, "index")) {
            names_in(&index, |name| !name.starts_with('u')).iter().for_each(|path| add(path));
        }
    }
    MORE.iter().for_each(|path| add(Path::new(path)));
    let weights = Path::new("/sys/kernel/mm/mempolicy/weighted_interleave");
    names_in(weights, |name| is_numbered(name, "node")).iter().for_each(|path| add(path));
    for module in ["page_alloc", "page_reporting"] {
        let parameters = Path::new("/sys/module").join(module).join("parameters");
        names_in(&parameters, |_| true).iter().for_each(|path| add(path));
    }
    text
}

/// What of a folder has such a name, sorted; nothing if there is no such folder.
fn names_in(folder: &Path, is_wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let wanted = |entry: &fs::DirEntry| entry.file_name().to_str().is_some_and(&is_wanted);
    let mut paths: Vec<PathBuf> = entries.filter(wanted).map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

fn is_numbered(name: &str, word: &str) -> bool {
    name.strip_prefix(word).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// A file that cannot be read or is empty has no line.
fn push_lines(text: &mut String, path: &Path) {
    for line in fs::read_to_string(path).unwrap_or_default().lines() {
        text.push_str(&format!("{}:{line}\n", path.display()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_surroundings() {
        let files = read();
        let text = |wanted: &str| {
            let (_, content) = files.iter().find(|(name, _)| *name == wanted).unwrap();
            String::from_utf8(content.clone()).unwrap()
        };
        assert!(text("version").starts_with("Linux version "));
        assert!(text("sysctl").lines().any(|line| line.starts_with("vm.swappiness = ")));
        assert!(text("sysfs").contains("/sys/devices/system/cpu/online:0"));
    }
}
