//! A machine of 1024 nodes, the most that there are: what is printed of it is written as it is made.

use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use tempfile::NamedTempFile;

/// Half of the text of zoneinfo alone, which has a line for each CPU in each zone. Memory that may be written: what a thread's malloc
/// reserves and does not touch is none of it.
const DATA_MAX: u64 = 128 << 20;

/// A node a line, each with a CPU.
fn machine() -> NamedTempFile {
    let lines: String = (0..1024).map(|cpu| format!("--numa 2G,cpus={cpu}\n")).collect();
    let file = NamedTempFile::new().unwrap();
    std::fs::write(file.path(), lines).unwrap();
    file
}

fn topo(machine: &NamedTempFile, format: &str) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("nearpage"));
    command.env_remove("NEARPAGE_NUMA").env_remove("NEARPAGE_RSEQ").env_remove("NEARPAGE_ENV");
    command.args(["topo", "--format", format, "--topology"]).arg(machine.path());
    command
}

#[test]
fn every_format_is_written_with_little_memory() {
    let machine = machine();
    for format in ["text", "zoneinfo", "fallback", "numactl", "json", "dot", "hwloc"] {
        let mut command = topo(&machine, format);
        let limit = libc::rlimit { rlim_cur: DATA_MAX, rlim_max: DATA_MAX };
        // SAFETY: the call reads the limits, which the closure holds.
        let set = move || match unsafe { libc::setrlimit(libc::RLIMIT_DATA, &limit) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        };
        // SAFETY: between fork and exec the closure makes a system call and allocates nothing.
        let output = unsafe { command.pre_exec(set) }.stdout(Stdio::null()).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), &*errors), (Some(0), ""), "{format}");
    }
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let machine = machine();
    for format in ["text", "zoneinfo", "json"] {
        let mut command = topo(&machine, format);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // Reads the first bytes and closes the pipe.
        child.stdout.take().unwrap().read_exact(&mut [0; 100]).unwrap();
        let output = child.wait_with_output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), &*errors), (Some(0), ""), "{format}");
    }
}
