//! How much memory this process may still take before the kernel kills a process for it.
//!
//! | source | content |
//! |---|---|
//! | `MemAvailable` of `/proc/meminfo` | memory that is available without swapping |
//! | `memory.max` and `memory.current` of the process's cgroup, and of those above it | the rest of a limit |
//! | `memory.limit_in_bytes` and `memory.usage_in_bytes` there, cgroups of version 1 | the same |
//!
//! The smallest of them counts. The use of a cgroup includes the cache of files that were not read lately. The kernel
//! drops them first when the cgroup reaches its limit, so they count as available.

use std::path::Path;

use nearpage_machine::FileTree;

/// Memory that may still be taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Room {
    /// How much.
    pub bytes: u64,
    /// The source of the number, for messages.
    pub source: String,
}

/// The files of a version of cgroups that have the limit and the use of memory.
struct Files {
    mount: &'static str,
    limit: &'static str,
    usage: &'static str,
    unread: &'static str,
}

const VERSION_1: Files = Files {
    mount: "sys/fs/cgroup/memory",
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    unread: "total_inactive_file",
};
const VERSION_2: Files = Files {
    mount: "sys/fs/cgroup",
    limit: "memory.max",
    usage: "memory.current",
    unread: "inactive_file",
};

impl Room {
    /// The room according to a tree of /sys and /proc; `None` if the tree has no source.
    pub fn of(tree: &dyn FileTree) -> Option<Room> {
        let cgroups = text(tree, "proc/self/cgroup").unwrap_or_default();
        let of_cgroups = cgroups.lines().filter_map(|line| of_cgroup(tree, line));
        of_machine(tree).into_iter().chain(of_cgroups).min_by_key(|room| room.bytes)
    }
}

fn of_machine(tree: &dyn FileTree) -> Option<Room> {
    let kilobytes = value(&text(tree, "proc/meminfo")?, "MemAvailable:")?;
    let source = "MemAvailable of /proc/meminfo".into();
    Some(Room { bytes: kilobytes.saturating_mul(1024), source })
}

/// The room of the cgroup in a line of `/proc/self/cgroup`, `NUMBER:CONTROLLERS:PATH`. In a container the path may be the
/// one outside. Then only the root of the mount exists, which is the container's cgroup.
fn of_cgroup(tree: &dyn FileTree, line: &str) -> Option<Room> {
    let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
    let files = match controllers {
        "" => VERSION_2,
        _ if controllers.split(',').any(|name| name == "memory") => VERSION_1,
        _ => return None,
    };
    let mount = Path::new(files.mount);
    let own = mount.join(path.trim_start_matches('/'));
    let folders = own.ancestors().take_while(|folder| folder.starts_with(mount));
    folders.filter_map(|folder| left(tree, folder, &files)).min_by_key(|room| room.bytes)
}

fn left(tree: &dyn FileTree, folder: &Path, files: &Files) -> Option<Room> {
    let file = |name: &str| text(tree, folder.join(name).to_str()?);
    // `max` is no number.
    let limit: u64 = file(files.limit)?.trim().parse().ok()?;
    let used: u64 = file(files.usage)?.trim().parse().ok()?;
    let unread = file("memory.stat").and_then(|stat| value(&stat, files.unread)).unwrap_or(0);
    let bytes = limit.saturating_sub(used.saturating_sub(unread));
    Some(Room { bytes, source: format!("{} in /{}", files.limit, folder.display()) })
}

/// The number behind a word at the beginning of a line.
fn value(text: &str, key: &str) -> Option<u64> {
    let mut lines = text.lines().map(str::split_ascii_whitespace);
    lines.find_map(|mut words| (words.next() == Some(key)).then(|| words.next()?.parse().ok())?)
}

/// A file, if it exists and this process may read it.
fn text(tree: &dyn FileTree, path: &str) -> Option<String> {
    Some(String::from_utf8_lossy(&tree.read(path).ok()??).into_owned())
}

#[cfg(test)]
mod tests {
    use nearpage_machine::MemoryTree;

    use super::*;

    const MEMINFO: (&str, &str) = ("proc/meminfo", "MemTotal: 9 kB\nMemAvailable:  2048 kB\n");

    fn room(files: &[(&str, &str)]) -> Option<(u64, String)> {
        let mut tree = MemoryTree::new("box");
        files.iter().for_each(|&(path, text)| tree.insert(path, text));
        Room::of(&tree).map(|room| (room.bytes, room.source))
    }

    #[test]
    fn the_machine_has_what_is_available() {
        assert_eq!(room(&[]), None);
        let all = Some((2 << 20, "MemAvailable of /proc/meminfo".into()));
        assert_eq!(room(&[MEMINFO]), all);
        let unlimited = [
            ("proc/self/cgroup", "0::/a\n"),
            ("sys/fs/cgroup/a/memory.max", "max\n"),
            ("sys/fs/cgroup/a/memory.current", "5\n"),
        ];
        assert_eq!(room(&[&unlimited[..], &[MEMINFO]].concat()), all);
    }

    #[test]
    fn the_tightest_cgroup_above_the_process_counts() {
        let files = [
            MEMINFO,
            ("proc/self/cgroup", "0::/user/job\n"),
            ("sys/fs/cgroup/user/job/memory.max", "1000000\n"),
            ("sys/fs/cgroup/user/job/memory.current", "100000\n"),
            ("sys/fs/cgroup/user/memory.max", "1000000\n"),
            ("sys/fs/cgroup/user/memory.current", "700000\n"),
        ];
        let source = "memory.max in /sys/fs/cgroup/user".to_owned();
        assert_eq!(room(&files), Some((300_000, source.clone())));
        let unread =
            [("sys/fs/cgroup/user/memory.stat", "anon 1\ninactive_file 200000\nactive_file 3\n")];
        assert_eq!(room(&[&files[..], &unread].concat()), Some((500_000, source)));
    }

    #[test]
    fn cgroups_of_version_1_and_paths_of_outside() {
        let files = [
            MEMINFO,
            ("proc/self/cgroup", "9:name=systemd:/\n4:cpu,memory:/docker/1234\n0::/\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "900\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "1000\n"),
        ];
        let source = "memory.limit_in_bytes in /sys/fs/cgroup/memory".to_owned();
        assert_eq!(room(&files), Some((0, source.clone())), "more is used than allowed");
        let unread = [("sys/fs/cgroup/memory/memory.stat", "total_inactive_file 600\n")];
        assert_eq!(room(&[&files[..], &unread].concat()), Some((500, source)));
    }
}
