//! `nearpage proc`, and a process as the input of other commands.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nearpage_linux::{Memory, StatsServer};

fn nearpage(arguments: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_nearpage");
    Command::new(program).args(arguments).env_remove("NEARPAGE_NUMA").output().unwrap()
}

/// One server at a time: by its id, a process with several is read at any of them.
static ONE: Mutex<()> = Mutex::new(());

struct Served {
    memory: Arc<Memory>,
    server: StatsServer,
    _one: MutexGuard<'static, ()>,
}

fn served(folder: &Path) -> Served {
    let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let memory = Arc::new(Memory::builder().bytes_per_node(16 << 20).build().unwrap());
    let server = memory.serve_stats(folder.join("socket")).unwrap();
    Served { memory, server, _one: one }
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_process_is_written_as_a_tree_that_other_commands_read() {
    let folder = tempfile::tempdir().unwrap();
    let Served { memory, server, _one } = served(folder.path());
    let tree = folder.path().join("tree");
    let tree = tree.to_str().unwrap();
    let socket = server.path().to_str().unwrap();
    let written = nearpage(&["proc", socket, tree]);
    assert!(written.status.success(), "{}", errors(&written));
    assert_eq!(fs::read_to_string(format!("{tree}/proc/zoneinfo")).unwrap(), memory.zoneinfo());
    let top = nearpage(&["top", "--once", "--sysroot", tree]);
    assert!(String::from_utf8_lossy(&top.stdout).contains("Normal"), "{}", errors(&top));
    let topo = nearpage(&["topo", "--sysroot", tree, "--format", "fallback"]);
    assert!(topo.status.success(), "{}", errors(&topo));
}

#[test]
fn metrics_of_a_process_by_its_id() {
    let folder = tempfile::tempdir().unwrap();
    let _served = served(folder.path());
    let id = std::process::id().to_string();
    let output = nearpage(&["export", "--process", &id, "--textfile", "-"]);
    assert!(output.status.success(), "{}", errors(&output));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.contains("node_zoneinfo_managed_pages{node=\"0\",zone=\"Normal\"} 4096"),
        "{text}"
    );
    assert!(text.contains("nearpage_unreadable_files 0"), "{text}");
}

#[test]
fn a_tree_is_kept_up_to_date_until_the_process_ends() {
    let folder = tempfile::tempdir().unwrap();
    let Served { memory, server, _one } = served(folder.path());
    let tree = folder.path().join("tree");
    let mut command = Command::new(env!("CARGO_BIN_EXE_nearpage"))
        .args(["proc", server.path().to_str().unwrap(), tree.to_str().unwrap(), "-e", "0.1"])
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let begin = Instant::now();
    let _blocks: Vec<_> = (0..100).map(|_| memory.alloc_pages(1).unwrap()).collect();
    let is_there = || {
        let text = fs::read_to_string(tree.join("proc/buddyinfo")).unwrap_or_default();
        text == memory.buddyinfo()
    };
    let wait = || {
        while !is_there() {
            assert!(begin.elapsed() < Duration::from_secs(20), "it is not written anew");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    wait();
    // What is written anew was whole before: only then has the process ended, and not been unreadable.
    let _more: Vec<_> = (0..100).map(|_| memory.alloc_pages(1).unwrap()).collect();
    wait();
    drop(server);
    let ended = command.wait_with_output_within(Duration::from_secs(20));
    assert_eq!(ended.status.code(), Some(1));
    assert!(errors(&ended).contains("the process has ended: "), "{}", errors(&ended));
}

trait Within {
    fn wait_with_output_within(&mut self, time: Duration) -> Output;
}

impl Within for std::process::Child {
    fn wait_with_output_within(&mut self, time: Duration) -> Output {
        let begin = Instant::now();
        while self.try_wait().unwrap().is_none() {
            if begin.elapsed() > time {
                self.kill().unwrap();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let mut stderr = Vec::new();
        std::io::Read::read_to_end(self.stderr.as_mut().unwrap(), &mut stderr).unwrap();
        Output { status: self.wait().unwrap(), stdout: Vec::new(), stderr }
    }
}

#[test]
fn what_cannot_be_read_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    let tree = tree.to_str().unwrap();
    let mut sleeper = Command::new("sleep").arg("60").spawn().unwrap();
    let (sleeping, gone) = (sleeper.id().to_string(), i32::MAX.to_string());
    for (process, told) in [
        (sleeping.as_str(), "serves no figures; it must call serve_stats"),
        (gone.as_str(), "there is no such process"),
        ("/nonexistent", "there is no such socket"),
        ("/dev/null", "nobody serves there any more, or it is no socket"),
    ] {
        for arguments in [&["proc", process, tree][..], &["export", "--process", process]] {
            let output = nearpage(arguments);
            assert_eq!(output.status.code(), Some(2), "{arguments:?}");
            assert!(errors(&output).contains(told), "{}", errors(&output));
        }
    }
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    let Served { server, .. } = &served(folder.path());
    let socket = server.path().to_str().unwrap();
    let others = nearpage(&["proc", socket, folder.path().to_str().unwrap()]);
    assert_eq!(others.status.code(), Some(2));
    assert!(errors(&others).contains("it is not empty"), "{}", errors(&others));
    let unwritable = nearpage(&["proc", socket, "/proc/nearpage"]);
    assert_eq!(unwritable.status.code(), Some(1), "{}", errors(&unwritable));
}
