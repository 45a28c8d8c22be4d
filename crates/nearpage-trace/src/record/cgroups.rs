//! Which cgroup each task is in, told in the trace by marks: `nearpage: cgroup PID PATH`. Nothing else of a trace tells it.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// Tasks are looked for so often: those that live shorter have no cgroup.
const EVERY: Duration = Duration::from_secs(1);
/// A look tells of so many new tasks at most; the next one tells of the others.
const TOLD_MOST: usize = 4096;
/// The longest path that is told: more than a mark takes is cut by the kernel.
const PATH_BYTES: usize = 900;

/// The tasks whose cgroups were told.
#[derive(Debug, Default)]
pub(super) struct Cgroups {
    told: HashSet<u32>,
    next: Option<Instant>,
}

impl Cgroups {
    /// Tasks that are there and were not told, with the paths of their cgroups; none if it is too early to look again.
    pub(super) fn due(&mut self) -> Vec<(u32, String)> {
        let now = Instant::now();
        if self.next.is_some_and(|next| now < next) {
            return Vec::new();
        }
        self.next = Some(now + EVERY);
        self.look(Path::new("/proc"))
    }

    fn look(&mut self, proc: &Path) -> Vec<(u32, String)> {
        let mut there = HashSet::new();
        let mut fresh = Vec::new();
        for process in numbers(proc) {
            let folder = proc.join(process.to_string());
            let mut path = None;
            for task in numbers(&folder.join("task")) {
                there.insert(task);
                if self.told.contains(&task) || fresh.len() >= TOLD_MOST {
                    continue;
                }
                // A process that ends meanwhile has none any more.
                let text = || fs::read_to_string(folder.join("cgroup")).ok();
                let path = path.get_or_insert_with(|| text().as_deref().and_then(path_of));
                if let Some(path) = path {
                    fresh.push((task, path.clone()));
                }
            }
        }
        // Numbers are used again.
        self.told.retain(|task| there.contains(task));
        self.told.extend(fresh.iter().map(|(task, _)| *task));
        fresh
    }
}

/// The names of a folder that are numbers.
fn numbers(folder: &Path) -> Vec<u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// The cgroup of version 2 (`0::/path`), or of the memory controller (`4:memory:/path`).
fn path_of(text: &str) -> Option<String> {
    let path = |line: &str, is_it: fn(&str) -> bool| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        is_it(controllers).then(|| path.to_owned())
    };
    let find = |is_it: fn(&str) -> bool| text.lines().find_map(|line| path(line, is_it));
    let mut path = find(|controllers| controllers.split(',').any(|one| one == "memory"))
        .or_else(|| find(str::is_empty))?;
    path.truncate(path.floor_char_boundary(PATH_BYTES));
    Some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_controller_counts_and_else_version_2() {
        let hybrid = "9:cpu,cpuacct:/c\n4:memory:/user.slice/a:b\n0::/user.slice\n";
        assert_eq!(path_of(hybrid).as_deref(), Some("/user.slice/a:b"));
        assert_eq!(
            path_of("0::/system.slice/x.service\n").as_deref(),
            Some("/system.slice/x.service")
        );
        assert_eq!(path_of("3:cpu:/x\n"), None);
        assert_eq!(path_of(&format!("0::/{}", "ä".repeat(2000))).unwrap().len(), 899);
    }

    #[test]
    fn each_task_is_told_once_as_long_as_it_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let task = |process: u32, task: u32| folder.path().join(format!("{process}/task/{task}"));
        let add = |process: u32, of: u32, path: &str| {
            fs::create_dir_all(task(process, of)).unwrap();
            fs::write(folder.path().join(format!("{process}/cgroup")), format!("0::{path}\n"))
                .unwrap();
        };
        add(7, 7, "/a");
        add(7, 8, "/a");
        add(9, 9, "/b");
        fs::create_dir(folder.path().join("self")).unwrap();
        let mut cgroups = Cgroups::default();
        let mut told = cgroups.look(folder.path());
        told.sort();
        assert_eq!(told, [(7, "/a".into()), (8, "/a".into()), (9, "/b".into())]);
        assert!(cgroups.look(folder.path()).is_empty());
        fs::remove_dir_all(folder.path().join("9")).unwrap();
        assert!(cgroups.look(folder.path()).is_empty());
        add(9, 9, "/c");
        assert_eq!(cgroups.look(folder.path()), [(9, "/c".into())]);
    }
}
