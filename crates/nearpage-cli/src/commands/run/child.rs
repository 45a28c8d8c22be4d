//! The program while it runs: signals, samples, and what its processes wrote.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, Permissions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nearpage_machine::{Budget, idlist};
use nearpage_malloc::{Options, Policy};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use tempfile::TempDir;

use super::super::CommandError;
use super::RunFailure;

/// How often the process's pages are looked at.
const INTERVAL: Duration = Duration::from_millis(500);

/// A look walks all pages of the process, which cannot change its mappings meanwhile: this many times as long passes until the
/// next.
const SHARE: u32 = 100;

/// What a program left behind.
pub(super) struct Ended {
    pub status: ExitStatus,
    /// Lines of its processes.
    pub lines: String,
    /// Pages of its own process by node, when last looked at.
    pub pages_by_node: BTreeMap<u32, u64>,
    /// What its own process had, over time.
    pub looks: Vec<Look>,
    /// The kernel's monotonic clock at its start, in milliseconds.
    pub begun_ms: u64,
    /// Its own process.
    pub process: u32,
    pub usage: libc::rusage,
    /// What `usage` has as the most that was resident, before the child became the program: a copy of this command.
    pub copied_kib: u64,
}

impl Ended {
    /// The most that was resident in a process, as far as the kernel can tell it from the copy that the program began as.
    pub fn peak_kib(&self) -> Option<u64> {
        let peak = self.most_kib();
        (peak > self.copied_kib + inexact_kib()).then_some(peak)
    }

    /// No process had more than this.
    pub fn most_kib(&self) -> u64 {
        self.usage.ru_maxrss.try_into().unwrap_or_default()
    }
}

/// How much the copy may have had beyond what was read of it: the code that it ran until it became the program, and what the kernel
/// counts of it in batches of each CPU, of three kinds of pages (`include/linux/percpu_counter.h`, 6.2).
fn inexact_kib() -> u64 {
    const CODE_KIB: u64 = 1024;
    const PAGE_KIB: u64 = 4;
    let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u64);
    CODE_KIB + 3 * cpus * (2 * cpus).max(32) * PAGE_KIB
}

/// What the kernel said of a process at a moment.
pub(super) struct Look {
    /// Seconds since its start.
    pub at_s: f64,
    pub pages_by_node: BTreeMap<u32, u64>,
    pub resident_kib: u64,
    pub huge_kib: u64,
}

/// Most looks that are kept: later ones replace every second of the earlier.
const LOOKS_MOST: usize = 2000;

/// Runs a program until it ends. With `samples` its processes write what they have meanwhile, too.
pub(super) fn run(
    command: &[OsString],
    options: &str,
    library: Option<&Path>,
    samples: bool,
) -> Result<Ended, CommandError> {
    let (_folder, lines) = file_of_lines().map_err(|error| RunFailure::NoFile {
        folder: std::env::temp_dir().display().to_string(),
        error,
    })?;
    let mut child = Command::new(&command[0]);
    child.args(&command[1..]);
    match library {
        Some(library) => {
            let mut preload = library.as_os_str().to_owned();
            if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty())
            {
                preload.push(OsStr::new(":"));
                preload.push(others);
            }
            child.env("LD_PRELOAD", preload);
            child.env("NEARPAGE_MALLOC", options);
            child.env("NEARPAGE_MALLOC_REPORT", &lines);
            if samples {
                child.env("NEARPAGE_MALLOC_SAMPLES", "1");
            }
        }
        None => under_policy(&mut child, Options::parse(options).0)?,
    }
    // Caught, not ignored: the program gets what it would have without this command in between. What a terminal sends comes
    // to both; what somebody sends to this process is passed on.
    let mut signals = Signals::new([SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2])?;
    let handle = signals.handle();
    let (mut copied, to_copied) = std::io::pipe()?;
    // SAFETY: the closure makes two system calls and allocates nothing.
    unsafe {
        child.pre_exec(move || {
            let of_copy = usage(libc::RUSAGE_SELF).ru_maxrss as u64;
            (&to_copied).write_all(&of_copy.to_ne_bytes())
        });
    }
    let mut child = child.spawn().map_err(|error| RunFailure::NotRun {
        program: command[0].to_string_lossy().into_owned(),
        error,
    })?;
    let process = child.id();
    let mut of_copy = [0; size_of::<u64>()];
    copied.read_exact(&mut of_copy)?;
    let copied_kib = u64::from_ne_bytes(of_copy);
    let begun = Instant::now();
    let begun_ms = monotonic_ms();
    let is_over = AtomicBool::new(false);
    let (status, looks) = std::thread::scope(|scope| {
        scope.spawn(move || {
            for signal in signals.forever().filter(|signal| ![SIGINT, SIGQUIT].contains(signal)) {
                // SAFETY: sends a signal; the child is not waited for yet, or this thread is about to end.
                unsafe { libc::kill(process as libc::pid_t, signal) };
            }
        });
        let sampler = scope.spawn(|| {
            let mut looks: Vec<Look> = Vec::new();
            let interval = if samples { INTERVAL / 5 } else { INTERVAL };
            let mut took = Duration::ZERO;
            while !is_over.load(Ordering::Relaxed) {
                std::thread::park_timeout(interval.max(took * SHARE));
                let look = Instant::now();
                let Some(pages_by_node) = pages_by_node(process) else { continue };
                if looks.len() >= LOOKS_MOST {
                    let mut at = 0;
                    looks.retain(|_| {
                        at += 1;
                        at % 2 == 0
                    });
                }
                let (resident_kib, huge_kib) = if samples { rollup(process) } else { (0, 0) };
                let at_s = begun.elapsed().as_secs_f64();
                looks.push(Look { at_s, pages_by_node, resident_kib, huge_kib });
                took = look.elapsed();
            }
            looks
        });
        let status = child.wait();
        is_over.store(true, Ordering::Relaxed);
        sampler.thread().unpark();
        handle.close();
        (status, sampler.join().unwrap_or_default())
    });
    let usage = usage(libc::RUSAGE_CHILDREN);
    let lines = written(&lines);
    let pages_by_node = looks.last().map(|look| look.pages_by_node.clone()).unwrap_or_default();
    Ok(Ended { status: status?, lines, pages_by_node, looks, begun_ms, process, usage, copied_kib })
}

/// What the kernel counted of this process, or of its children.
fn usage(of: libc::c_int) -> libc::rusage {
    // SAFETY: numbers; zeroes are a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the place for the answer is there.
    unsafe { libc::getrusage(of, &raw mut usage) };
    usage
}

/// Characters of a name that nobody guesses.
const NAME_CHARACTERS: usize = 32;

/// Makes the file to which processes add their lines, in a folder of its own. Those of root may become another user, who then
/// adds to it too: all may write to it who know its name, and only the environment of these processes has it. The folder's
/// name is seen by all, and nobody else may list what is in it.
fn file_of_lines() -> std::io::Result<(TempDir, PathBuf)> {
    let folder = tempfile::Builder::new().prefix("nearpage-run-").tempdir()?;
    // SAFETY: asks only.
    let is_root = unsafe { libc::geteuid() } == 0;
    let (of_folder, of_file) = if is_root { (0o711, 0o622) } else { (0o700, 0o600) };
    let lines = tempfile::Builder::new()
        .prefix("")
        .rand_bytes(NAME_CHARACTERS)
        .tempfile_in(folder.path())?;
    let (file, path) = lines.keep().map_err(|error| error.error)?;
    file.set_permissions(Permissions::from_mode(of_file))?;
    fs::set_permissions(folder.path(), Permissions::from_mode(of_folder))?;
    Ok((folder, path))
}

/// What processes wrote: who knows the file's name may have written anything, and any amount.
fn written(lines: &Path) -> String {
    let mut text = Vec::new();
    let read = fs::File::open(lines)
        .and_then(|file| file.take(Budget::DEFAULT.file_bytes).read_to_end(&mut text));
    read.map_or_else(|_| String::new(), |_| String::from_utf8_lossy(&text).into_owned())
}

/// The clock that samples of processes have.
fn monotonic_ms() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the place for the answer is there.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000
}

/// Resident memory and huge pages, of `/proc/PID/smaps_rollup`, in KiB.
fn rollup(process: u32) -> (u64, u64) {
    let text = fs::read_to_string(format!("/proc/{process}/smaps_rollup")).unwrap_or_default();
    let of = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or_default()
    };
    (of("Rss:"), of("AnonHugePages:"))
}

/// Pages by node, of `/proc/PID/numa_maps`. `None` without it, or when the process has ended.
fn pages_by_node(process: u32) -> Option<BTreeMap<u32, u64>> {
    let text = fs::read_to_string(format!("/proc/{process}/numa_maps")).ok()?;
    let mut pages = BTreeMap::new();
    for word in text.split_whitespace().filter(|word| word.starts_with('N')) {
        let Some((node, count)) = word[1..].split_once('=') else { continue };
        if let (Ok(node), Ok(count)) = (node.parse::<u32>(), count.parse::<u64>()) {
            *pages.entry(node).or_default() += count;
        }
    }
    (!pages.is_empty()).then_some(pages)
}

/// Sets the policy in the child before it becomes the program.
fn under_policy(child: &mut Command, options: Options) -> Result<(), RunFailure> {
    let mode = match options.policy {
        Policy::Preferred => libc::MPOL_PREFERRED,
        Policy::Bind => libc::MPOL_BIND,
        Policy::Interleave => libc::MPOL_INTERLEAVE,
        _ => libc::MPOL_LOCAL,
    };
    let there = nodes_with_memory();
    let nodes = match options.nodes {
        _ if mode == libc::MPOL_LOCAL => 0,
        0 => there,
        nodes if nodes & there == 0 => return Err(RunFailure::NoNode { asked: nodes, there }),
        nodes => nodes,
    };
    let set = move || {
        // SAFETY: the mask has 64 bits, and the kernel looks at one less than it is told.
        let answer = unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, &raw const nodes, 65) };
        if answer == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    // SAFETY: the closure makes one system call and allocates nothing.
    unsafe { child.pre_exec(set) };
    Ok(())
}

/// The machine's nodes with memory, a bit each; node 0 where the kernel does not tell.
fn nodes_with_memory() -> u64 {
    let list = fs::read_to_string("/sys/devices/system/node/has_memory").unwrap_or_default();
    let ids = idlist::parse(list.trim()).unwrap_or_default();
    let bits = ids.iter().filter(|id| **id < 64).fold(0, |bits, id| bits | 1 << id);
    if bits == 0 { 1 } else { bits }
}

/// Nodes of a set, as `--options` takes them.
pub(super) fn node_list(bits: u64) -> String {
    let ids: Vec<u32> = (0..64).filter(|id| bits >> id & 1 == 1).collect();
    idlist::format(&ids).replace(',', "+")
}

/// The exit code that a shell would tell.
pub(super) fn exit_code(status: ExitStatus) -> u8 {
    let signal = || 128 + status.signal().unwrap_or_default();
    status.code().unwrap_or_else(signal) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that root starts may become another user before it opens the file.
    #[test]
    fn who_root_becomes_may_add_lines_and_nobody_may_read_them() {
        let (folder, lines) = file_of_lines().unwrap();
        assert_eq!(lines.file_name().unwrap().len(), NAME_CHARACTERS);
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        // SAFETY: asks only.
        let expected =
            if unsafe { libc::geteuid() } == 0 { [0o711, 0o622] } else { [0o700, 0o600] };
        assert_eq!([mode(folder.path()), mode(&lines)], expected);
        fs::write(&lines, b"a\xffb\n").unwrap();
        assert_eq!(written(&lines), "a\u{fffd}b\n");
        fs::File::options()
            .write(true)
            .open(&lines)
            .unwrap()
            .set_len(Budget::DEFAULT.file_bytes + 9)
            .unwrap();
        assert_eq!(
            written(&lines).len() as u64,
            Budget::DEFAULT.file_bytes + 2,
            "a byte became three"
        );
        assert_eq!(written(folder.path()), "");
    }
}
