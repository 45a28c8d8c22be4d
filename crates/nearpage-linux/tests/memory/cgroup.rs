//! Cpusets that shrink, and limits of cgroups that are met. Each needs root and a kernel whose cgroups somebody mounted; where
//! that is not so, the tests are skipped, unless the machine is said to be theirs.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nearpage_linux::Memory;

use super::alone::{alone, is_own_machine};
use super::child_threads;
use super::sandbox::{child, in_child, small, work};

/// A cpuset of its own shrinks, CPUs and, where there are several, nodes, while threads work. It needs root and a
/// kernel whose cpusets somebody mounted; elsewhere `sandbox::masks_that_shrink` and
/// `sandbox::nodes_that_are_not_allowed_any_more` stand for it.
#[test]
fn a_cpuset_that_shrinks() {
    alone("cgroup::a_cpuset_that_shrinks", || {
        let Some(cpuset) = Cpuset::new() else {
            assert!(!is_own_machine(), "no cpuset can be made here");
            return;
        };
        in_child(|| {
            cpuset.enter();
            let (cpus, nodes) =
                (list_of_status("Cpus_allowed_list:"), list_of_status("Mems_allowed_list:"));
            let memory = small().reserve_per_node(64 << 20).build().unwrap();
            let is_over = AtomicBool::new(false);
            let work_on = || {
                while !is_over.load(Ordering::Relaxed) {
                    work(&memory);
                }
            };
            child_threads::beside(3, work_on, || {
                for _ in 0..10 {
                    for (cpus, nodes) in [(&cpus[..1], &nodes[..1]), (&cpus[..], &nodes[..])] {
                        cpuset.shrink_to(cpus, nodes);
                        std::thread::sleep(Duration::from_millis(20));
                    }
                }
                cpuset.shrink_to(&cpus[..1], &nodes[..1]);
                is_over.store(true, Ordering::Relaxed);
            });
            assert_eq!(list_of_status("Mems_allowed_list:"), nodes[..1]);
            // What comes online now, on a node that is not allowed too, can be used.
            let with_memory =
                memory.topology().nodes().iter().filter(|node| !node.memory.is_empty());
            for node in with_memory {
                memory.bring_online(node.id, 32 << 20).unwrap();
            }
            work(&memory);
            memory.drain_all().unwrap();
            assert_eq!(memory.check().unwrap().allocated.0, 0);
        });
    });
}

/// Memory is held up to two thirds of a cgroup's limit and freed, and another part of the process wants as much. After a trim
/// it gets it. Without one the kernel kills the process, and nobody else: so the limit is there, and was met.
#[test]
fn a_limit_that_is_met() {
    alone("cgroup::a_limit_that_is_met", || {
        let Some(limited) = Limited::new(96 << 20) else {
            assert!(!is_own_machine(), "no cgroup with a limit can be made here");
            return;
        };
        for trims in [true, false] {
            let killed_before = limited.killed();
            let (status, told) = child(|| {
                limited.0.enter();
                let memory = small().bytes_per_node(80 << 20).build().unwrap();
                hold_and_free(&memory, 64 << 20);
                if trims {
                    assert!(memory.trim().0 >= (64 << 20) / 4096);
                }
                touch_of_the_kernel(64 << 20);
                work(&memory);
                assert_eq!(memory.check().unwrap().allocated.0, 0);
            });
            let killed = limited.killed() - killed_before;
            let expected = if trims { (0, 0) } else { (libc::SIGKILL, 1) };
            assert_eq!((status, killed), expected, "trims: {trims}; {told}");
        }
    });
}

/// Every page of so much is written to, and all is free again.
fn hold_and_free(memory: &Memory, bytes: u64) {
    let mut pages: Vec<_> = (0..bytes / 4096).map(|_| memory.alloc_pages(1).unwrap()).collect();
    pages.iter_mut().for_each(|page| page[0] = 1);
}

/// Memory that is not nearpage's: every page is written to.
fn touch_of_the_kernel(bytes: usize) {
    let mut memory = vec![0_u8; bytes];
    memory.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
    std::hint::black_box(&memory);
}

/// A folder of the kernel's cgroups; gone when dropped.
struct Cgroup(PathBuf);

impl Cgroup {
    /// One in the folder where such are mounted, if it can be made.
    fn new(mount: &str) -> Option<Self> {
        let folder = Path::new(mount).join(format!("nearpage-test-{}", std::process::id()));
        std::fs::create_dir(&folder).is_ok().then_some(Self(folder))
    }

    fn write(&self, file: &str, text: &str) -> std::io::Result<()> {
        // Not created: what is not there the kernel does not have.
        let mut file = File::options().write(true).open(self.0.join(file))?;
        file.write_all(text.as_bytes())
    }

    fn enter(&self) {
        self.write("cgroup.procs", &std::process::id().to_string()).unwrap();
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// One with a limit on memory, and its file of what the limit did: of the second version of cgroups, or the first.
struct Limited(Cgroup, &'static str);

impl Limited {
    fn new(bytes: u64) -> Option<Self> {
        let versions = [
            ("/sys/fs/cgroup", "memory.max", "memory.events"),
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.oom_control"),
        ];
        versions.into_iter().find_map(|(mount, limit, events)| {
            let group = Cgroup::new(mount)?;
            group.write(limit, &bytes.to_string()).ok()?;
            // Not there where the kernel has no swap.
            let _ = group.write("memory.swap.max", "0");
            Some(Self(group, events))
        })
    }

    /// Processes that the kernel killed because of the limit.
    fn killed(&self) -> u64 {
        let events = std::fs::read_to_string(self.0.0.join(self.1)).unwrap();
        let killed = events.lines().find_map(|line| line.strip_prefix("oom_kill "));
        killed.unwrap().parse().unwrap()
    }
}

/// One that says which CPUs and nodes are allowed.
struct Cpuset(Cgroup);

impl Cpuset {
    /// With all that is allowed here, if one can be made.
    fn new() -> Option<Self> {
        let (cpus, nodes) =
            (list_of_status("Cpus_allowed_list:"), list_of_status("Mems_allowed_list:"));
        let mounts = ["/sys/fs/cgroup/cpuset", "/sys/fs/cgroup"];
        let mut made = mounts.into_iter().filter_map(Cgroup::new).map(Self);
        made.find(|cpuset| cpuset.allow(&cpus, &nodes).is_ok())
    }

    fn allow(&self, cpus: &[usize], nodes: &[usize]) -> std::io::Result<()> {
        for (file, ids) in [("cpuset.cpus", cpus), ("cpuset.mems", nodes)] {
            let text: Vec<String> = ids.iter().map(usize::to_string).collect();
            self.0.write(file, &text.join(","))?;
        }
        Ok(())
    }

    fn enter(&self) {
        self.0.enter();
    }

    fn shrink_to(&self, cpus: &[usize], nodes: &[usize]) {
        self.allow(cpus, nodes).unwrap();
    }
}

/// Ids of a line of /proc/self/status.
fn list_of_status(name: &str) -> Vec<usize> {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let list = text.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim();
    let bounds = list.split(',').map(|range| range.split_once('-').unwrap_or((range, range)));
    bounds.flat_map(|(first, last)| first.parse().unwrap()..=last.parse().unwrap()).collect()
}
