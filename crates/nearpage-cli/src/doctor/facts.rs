//! What is looked at.

use nearpage_linux::calls::Call;
use nearpage_linux::environment::Environment;
use nearpage_linux::memory::StorageInUse;
use nearpage_linux::sysfs::{Machine, Source, SysfsError, TextFile, read_machine};
use nearpage_linux::tree::FileTree;

use super::reader::Reader;

/// What a machine tells; `None` where it does not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Facts {
    /// Nodes, CPUs, memory.
    pub machine: Option<Machine>,
    /// `kernel.numa_balancing`: bit 0 moves pages to who uses them, bit 1 promotes from slow nodes.
    pub numa_balancing: Option<u64>,
    /// `vm.zone_reclaim_mode`.
    pub zone_reclaim_mode: Option<u64>,
    /// `vm.overcommit_memory`.
    pub overcommit_memory: Option<u64>,
    /// `vm.percpu_pagelist_high_fraction`.
    pub percpu_pagelist_high_fraction: Option<u64>,
    /// `vm.max_map_count`.
    pub max_map_count: Option<u64>,
    /// The word chosen in `transparent_hugepage/enabled`.
    pub huge_pages: Option<String>,
    /// The word chosen in `transparent_hugepage/defrag`.
    pub huge_page_defrag: Option<String>,
    /// What the process that read or copied the files may use.
    pub allowed: Option<Allowed>,
    /// What this process found out by trying, if the machine is the one that it runs on.
    pub process: Option<Process>,
    /// Files that cannot be read or understood: the place, what stands there, what would be accepted.
    pub unreadable: Vec<String>,
}

/// CPUs and nodes that a process may use: `/proc/self/status`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Allowed {
    /// `Cpus_allowed_list`.
    pub cpus: Vec<u32>,
    /// `Mems_allowed_list`.
    pub nodes: Vec<u32>,
}

/// What a process finds out by trying.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Process {
    /// System calls with the errno of their refusal.
    pub calls: Vec<(Call, Option<i32>)>,
    /// The storage that pagesets would have.
    pub storage: StorageInUse,
    /// `RLIMIT_AS` in bytes, if there is a limit.
    pub address_limit: Option<u64>,
}

impl Facts {
    /// Reads a tree of /sys and /proc, as far as it can be understood.
    pub fn read(tree: &dyn FileTree) -> Facts {
        let mut reader = Reader::new(tree);
        let mut number = |path: &str| ask(&mut reader, path, |file| file.number("a number"));
        let mut facts = Facts {
            machine: None,
            numa_balancing: number("proc/sys/kernel/numa_balancing"),
            zone_reclaim_mode: number("proc/sys/vm/zone_reclaim_mode"),
            overcommit_memory: number("proc/sys/vm/overcommit_memory"),
            percpu_pagelist_high_fraction: number("proc/sys/vm/percpu_pagelist_high_fraction"),
            max_map_count: number("proc/sys/vm/max_map_count"),
            huge_pages: chosen(&mut reader, "enabled"),
            huge_page_defrag: chosen(&mut reader, "defrag"),
            allowed: ask(&mut reader, "proc/self/status", allowed).flatten(),
            process: None,
            unreadable: Vec::new(),
        };
        facts.machine = reader.ask(read_machine);
        facts.unreadable = reader.into_refused().iter().map(ToString::to_string).collect();
        facts
    }

    /// Whether there are several nodes, or may be.
    pub(super) fn has_many_nodes(&self) -> bool {
        self.machine.as_ref().is_none_or(|machine| machine.nodes.len() > 1)
    }
}

impl Process {
    /// Tries on this machine.
    pub fn probe(environment: &Environment) -> Process {
        let errno = |call: Call| call.probe().err().and_then(|error| error.raw_os_error());
        Process {
            calls: Call::ALL.map(|call| (call, errno(call))).into(),
            storage: StorageInUse::of_this_process(environment),
            address_limit: address_limit(),
        }
    }
}

fn address_limit() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: writes the limit, which is ours.
    unsafe { libc::getrlimit(libc::RLIMIT_AS, &mut limit) };
    (limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// What `parse` makes of a file; `None` where there is none.
fn ask<T>(
    reader: &mut Reader<'_>,
    path: &str,
    parse: impl Fn(&TextFile) -> Result<T, SysfsError>,
) -> Option<T> {
    let read = |tree: &dyn FileTree| {
        Source::new(tree).read_if_allowed(path)?.as_ref().map(&parse).transpose()
    };
    reader.ask(read).flatten()
}

/// The word in brackets: `always [madvise] never`.
fn chosen(reader: &mut Reader<'_>, name: &str) -> Option<String> {
    let word = |file: &TextFile| {
        let (_, rest) = file.text.split_once('[')?;
        Some(rest.split_once(']')?.0.to_owned())
    };
    let path = format!("sys/kernel/mm/transparent_hugepage/{name}");
    ask(reader, &path, |file| Ok(word(file))).flatten()
}

fn allowed(status: &TextFile) -> Result<Option<Allowed>, SysfsError> {
    let list = |key: &str| -> Result<Option<Vec<u32>>, SysfsError> {
        let mut lines = status.text.lines().enumerate();
        let found = lines.find_map(|(at, line)| Some((at, line.strip_prefix(key)?.trim())));
        let Some((at, text)) = found else { return Ok(None) };
        let wrong = |_| status.syntax(at + 1, key.len() + 2, text, "a list of ids such as 0-3,8");
        nearpage_linux::idlist::parse(text).map(Some).map_err(wrong)
    };
    let (cpus, nodes) = (list("Cpus_allowed_list:")?, list("Mems_allowed_list:")?);
    Ok(cpus.zip(nodes).map(|(cpus, nodes)| Allowed { cpus, nodes }))
}

#[cfg(test)]
mod tests {
    use nearpage_linux::tree::MemoryTree;

    use super::*;

    fn tree() -> MemoryTree {
        let mut tree = MemoryTree::new("box");
        tree.insert("sys/devices/system/cpu/online", "0-1");
        tree.insert("proc/meminfo", "MemTotal: 4096 kB\n");
        tree
    }

    #[test]
    fn what_is_missing_is_unknown() {
        let facts = Facts::read(&tree());
        assert_eq!((facts.numa_balancing, facts.huge_pages, facts.allowed), (None, None, None));
        assert!(facts.process.is_none());
        assert_eq!(facts.unreadable, [""; 0]);
    }

    #[test]
    fn what_is_there_is_read() {
        let mut tree = tree();
        tree.insert("proc/sys/kernel/numa_balancing", "1\n");
        tree.insert("sys/kernel/mm/transparent_hugepage/defrag", "always defer [never]\n");
        tree.insert(
            "proc/self/status",
            "Name:\tcp\nCpus_allowed_list:\t0\nMems_allowed_list:\t1,3\n",
        );
        let facts = Facts::read(&tree);
        assert_eq!(facts.numa_balancing, Some(1));
        assert_eq!(facts.huge_page_defrag.as_deref(), Some("never"));
        assert_eq!(facts.allowed, Some(Allowed { cpus: vec![0], nodes: vec![1, 3] }));
    }

    #[test]
    fn what_cannot_be_understood_is_named_and_the_rest_is_read() {
        let mut tree = tree();
        tree.insert("proc/self/status", "Cpus_allowed_list:\t0\nMems_allowed_list:\t3-1\n");
        tree.insert("proc/sys/vm/overcommit_memory", "no");
        tree.insert("proc/sys/vm/zone_reclaim_mode", "0");
        tree.insert("proc/meminfo", "MemTotal: x kB\n");
        let facts = Facts::read(&tree);
        assert_eq!(
            facts.unreadable,
            [
                "box: proc/sys/vm/overcommit_memory:1:1: found \"no\", expected a number",
                "box: proc/self/status:2:20: found \"3-1\", expected a list of ids such as 0-3,8",
                "box: proc/meminfo:1:11: found \"x\", expected a number of kB",
            ]
        );
        assert_eq!(facts.zone_reclaim_mode, Some(0));
        assert_eq!(facts.machine.unwrap().nodes[0].memory_bytes, None);
    }
}
