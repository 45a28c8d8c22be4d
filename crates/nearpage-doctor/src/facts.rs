//! The facts that the rules judge.

use nearpage_linux::internals::address_limit;
use nearpage_linux::{Environment, StorageInUse, SystemCall};
use nearpage_machine::Machine;
use nearpage_machine::sysfs::TextFile;
use nearpage_machine::{FileTree, FolderTree};

use crate::allowed::{self, Allowed};
use crate::machine::{self, Of};
use crate::reader::Reader;

/// The facts about a machine; `None` where unknown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Facts {
    /// Nodes, CPUs, memory.
    pub machine: Option<Machine>,
    /// `kernel.numa_balancing`: bit 0 moves pages to the node that uses them, bit 1 promotes pages from slow nodes.
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
    /// The CPUs and nodes of the process that read or copied the files.
    pub allowed: Option<Allowed>,
    /// What this process found out by trying, if it runs on this machine.
    pub process: Option<Process>,
    /// What every machine should have in its files and this one lacks.
    pub missing: Vec<String>,
    /// Files that a copy lacks, each with the rule that is not judged for it.
    pub unjudged: Vec<(&'static str, &'static str)>,
    /// Files that cannot be read or understood: the place, the text there, and what is accepted.
    pub unreadable: Vec<String>,
}

/// What a process found out by trying.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Process {
    /// System calls with the errno of their refusal.
    pub calls: Vec<(SystemCall, Option<i32>)>,
    /// The storage that pagesets get.
    pub storage: StorageInUse,
    /// `RLIMIT_AS` in bytes, if there is a limit.
    pub address_limit: Option<u64>,
}

impl Facts {
    /// Reads a tree of /sys and /proc, as far as it can be understood. A value that the kernel never writes is refused:
    /// `Documentation/admin-guide/sysctl/kernel.rst`, `vm.rst` and `mm/transhuge.rst`, 6.12.
    pub fn read(tree: &dyn FileTree) -> Facts {
        Self::of(tree, Of::Copy)
    }

    /// Reads /sys and /proc of this machine, and tries what a process with this environment can do.
    pub fn of_this_machine(environment: &Environment) -> Facts {
        let facts = Self::of(&FolderTree::new("/"), Of::ThisMachine);
        Facts { process: Some(Process::probe(environment)), ..facts }
    }

    fn of(tree: &dyn FileTree, of: Of) -> Facts {
        let mut reader = Reader::new(tree);
        let mut number = |path: &str, accepts: fn(u64) -> bool, expected: &str| {
            reader.file(path, |file| match file.number(expected)? {
                value if accepts(value) => Ok(value),
                value => Err(file.syntax(1, 1, &value.to_string(), expected)),
            })
        };
        let mut facts = Facts {
            machine: None,
            numa_balancing: number("proc/sys/kernel/numa_balancing", |mode| mode <= 3, "0 to 3"),
            zone_reclaim_mode: number("proc/sys/vm/zone_reclaim_mode", |mode| mode <= 7, "0 to 7"),
            overcommit_memory: number("proc/sys/vm/overcommit_memory", |mode| mode <= 2, "0 to 2"),
            percpu_pagelist_high_fraction: number(
                "proc/sys/vm/percpu_pagelist_high_fraction",
                |fraction| fraction == 0 || fraction >= 8,
                "0, or 8 or more",
            ),
            max_map_count: number(
                "proc/sys/vm/max_map_count",
                |count| count <= i32::MAX as u64,
                "0 to 2147483647",
            ),
            huge_pages: chosen(&mut reader, "enabled", &["always", "madvise", "never"]),
            huge_page_defrag: chosen(
                &mut reader,
                "defrag",
                &["always", "defer", "defer+madvise", "madvise", "never"],
            ),
            allowed: None,
            process: None,
            missing: Vec::new(),
            unjudged: Vec::new(),
            unreadable: Vec::new(),
        };
        let refused = reader.refused().len();
        facts.machine = machine::read(&mut reader, of);
        let machine = facts.machine.as_ref();
        // Lists of CPUs that cannot be read say nothing about others.
        let is_known = reader.refused().len() == refused;
        facts.missing = machine::missing(&reader, of, machine);
        if of == Of::Copy {
            facts.unjudged = machine::unjudged(tree);
        }
        facts.allowed =
            allowed::read(&mut reader, machine.filter(|_| is_known), &mut facts.missing);
        facts.unreadable = reader.refused().iter().map(ToString::to_string).collect();
        facts
    }

    /// Whether there are several nodes. An unknown machine counts as one with several.
    pub(super) fn has_many_nodes(&self) -> bool {
        self.machine.as_ref().is_none_or(|machine| machine.nodes.len() > 1)
    }
}

impl Process {
    /// Tries system calls, the storage and the limit on this machine.
    pub fn probe(environment: &Environment) -> Process {
        let errno = |call: SystemCall| call.probe().err().and_then(|error| error.raw_os_error());
        Process {
            calls: SystemCall::ALL.map(|call| (call, errno(call))).into(),
            storage: StorageInUse::of_this_process(environment),
            address_limit: address_limit(),
        }
    }
}

/// The word in brackets: `always [madvise] never`.
fn chosen(reader: &mut Reader<'_>, name: &str, words: &[&str]) -> Option<String> {
    let word = |file: &TextFile| {
        let chosen = file.text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
        match chosen {
            Some((word, _)) if words.contains(&word) => Ok(word.to_owned()),
            _ => {
                let expected = format!("one of {} in brackets", words.join(", "));
                Err(file.syntax(1, 1, file.text.trim(), expected))
            }
        }
    };
    reader.file(&format!("sys/kernel/mm/transparent_hugepage/{name}"), word)
}

#[cfg(test)]
mod tests {
    use nearpage_machine::MemoryTree;

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
        assert_eq!(facts.missing, [""; 0]);
        assert_eq!(facts.unjudged.len(), 8, "rule by rule: {:?}", facts.unjudged);
        assert_eq!(facts.unjudged[0], ("proc/sys/kernel/numa_balancing", "kernel.numa_balancing"));
    }

    #[test]
    fn what_is_there_is_read() {
        let mut tree = tree();
        tree.insert("proc/sys/kernel/numa_balancing", "1\n");
        tree.insert("sys/kernel/mm/transparent_hugepage/defrag", "always defer [never]\n");
        let facts = Facts::read(&tree);
        assert_eq!(facts.numa_balancing, Some(1));
        assert_eq!(facts.huge_page_defrag.as_deref(), Some("never"));
    }

    #[test]
    fn what_cannot_be_understood_is_named_and_the_rest_is_read() {
        let mut tree = tree();
        tree.insert("proc/sys/vm/overcommit_memory", "no");
        tree.insert("proc/sys/vm/zone_reclaim_mode", "0");
        tree.insert("proc/meminfo", "MemTotal: x kB\n");
        let facts = Facts::read(&tree);
        assert_eq!(
            facts.unreadable,
            [
                "box: proc/sys/vm/overcommit_memory:1:1: found \"no\", expected 0 to 2",
                "box: proc/meminfo:1:11: found \"x\", expected a number of kB",
            ]
        );
        assert_eq!(facts.zone_reclaim_mode, Some(0));
        assert_eq!(facts.machine.unwrap().nodes[0].memory_bytes, None);
    }

    #[test]
    fn what_no_kernel_writes_is_not_judged() {
        let cases = [
            ("proc/sys/kernel/numa_balancing", "99", "0 to 3"),
            ("proc/sys/vm/zone_reclaim_mode", "8", "0 to 7"),
            ("proc/sys/vm/overcommit_memory", "7", "0 to 2"),
            ("proc/sys/vm/percpu_pagelist_high_fraction", "7", "0, or 8 or more"),
            ("proc/sys/vm/max_map_count", "-1", "0 to 2147483647"),
            (
                "sys/kernel/mm/transparent_hugepage/enabled",
                "[bogus]",
                "one of always, madvise, never in brackets",
            ),
            (
                "sys/kernel/mm/transparent_hugepage/defrag",
                "nothing",
                "one of always, defer, defer+madvise, madvise, never in brackets",
            ),
        ];
        for (path, text, expected) in cases {
            let mut tree = tree();
            tree.insert(path, format!("{text}\n"));
            let facts = Facts::read(&tree);
            let refused = format!("box: {path}:1:1: found {text:?}, expected {expected}");
            assert_eq!(facts.unreadable, [refused]);
            let (unread, lacking) =
                (Facts { unreadable: vec![], ..facts }, Facts::read(&self::tree()));
            let known = Facts { unjudged: unread.unjudged.clone(), ..lacking.clone() };
            assert_eq!(unread, known, "nothing of it is believed");
            assert_eq!(unread.unjudged.len() + 1, lacking.unjudged.len(), "it is not missing");
        }
    }
}
