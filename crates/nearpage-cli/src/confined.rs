//! Rights that a command gives up before it reads what a stranger made.
//!
//! Landlock leaves it its inputs, the folders of its outputs, and what it must know of this machine; no network. Seccomp leaves it the
//! calls that reading, computing and writing need: no program is started, no process looked into, no socket made. An error in a
//! parser has no more than that.

use std::fs;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};

/// The newest rules that are asked for; an older kernel keeps those that it knows.
const NEWEST: ABI = ABI::V6;

/// What is read besides inputs: how many CPUs there are, and how many of them are this program's.
const ALWAYS_READ: [&str; 6] = [
    "/proc/self",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/sys/devices/system",
    "/sys/fs/cgroup",
    "/dev/null",
];

/// What a command still needs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Rights {
    reads: Vec<PathBuf>,
    writes: Vec<PathBuf>,
    has_panes: bool,
}

impl Rights {
    /// Reads files or folders; names of what comes along, and `-`, are no files.
    pub(crate) fn reading<P: AsRef<Path>>(mut self, paths: impl IntoIterator<Item = P>) -> Self {
        self.reads.extend(paths.into_iter().map(|path| path.as_ref().to_owned()));
        self
    }

    /// Makes or replaces files; `-` is none.
    pub(crate) fn writing<P: AsRef<Path>>(mut self, paths: impl IntoIterator<Item = P>) -> Self {
        let paths = paths.into_iter().map(|path| path.as_ref().to_owned());
        self.writes.extend(paths.filter(|path| path.as_os_str() != "-"));
        self
    }

    /// Unpacks into files without a name.
    pub(crate) fn unpacking(self) -> Self {
        let file = std::env::temp_dir().join("unpacked");
        self.writing([file])
    }

    /// Shows panes on a terminal, and stops with its group.
    pub(crate) fn with_panes(self) -> Self {
        Rights { has_panes: true, ..self }
    }
}

/// Keeps these rights, in this thread and in those that it starts. Returns what this kernel did not take.
pub(crate) fn keep(rights: &Rights) -> Option<String> {
    let files = keep_files(rights);
    let calls = keep_calls(rights);
    let files = match files {
        Ok(RulesetStatus::NotEnforced) => Some("this kernel has no Landlock".to_owned()),
        Ok(_) => None,
        Err(error) => Some(format!("Landlock: {error}")),
    };
    let calls = calls.err().map(|error| format!("seccomp: {error}"));
    let lacking: Vec<String> = files.into_iter().chain(calls).collect();
    (!lacking.is_empty()).then(|| lacking.join("; "))
}

fn keep_files(rights: &Rights) -> Result<RulesetStatus, RulesetError> {
    let mut rules = Ruleset::default()
        .handle_access(AccessFs::from_all(NEWEST))?
        .handle_access(AccessNet::from_all(NEWEST))?;
    if !rights.has_panes {
        rules = rules.scope(Scope::from_all(NEWEST))?;
    }
    let mut rules = rules.create()?;
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    for path in ALWAYS_READ.iter().map(Path::new).chain(rights.reads.iter().map(PathBuf::as_path)) {
        allow(&mut rules, path, read);
    }
    allow(&mut rules, Path::new("/dev/null"), AccessFs::WriteFile.into());
    if rights.has_panes {
        allow(&mut rules, Path::new("/dev/tty"), read | AccessFs::WriteFile | AccessFs::IoctlDev);
    }
    let make = read
        | AccessFs::WriteFile
        | AccessFs::Truncate
        | AccessFs::MakeReg
        | AccessFs::MakeDir
        | AccessFs::RemoveFile
        | AccessFs::RemoveDir;
    for path in &rights.writes {
        // An older page is replaced where a link leads to; a device is written to itself.
        let target = fs::canonicalize(path).or_else(|_| fs::read_link(path));
        for path in [Some(path.clone()), target.ok()].into_iter().flatten() {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            allow(&mut rules, folder.unwrap_or(Path::new(".")), make);
            if !path.is_dir() {
                allow(&mut rules, &path, AccessFs::WriteFile.into());
            }
        }
    }
    Ok(rules.restrict_self()?.ruleset)
}

/// What is not there needs no right. Files that no path leads to, such as a pipe of a shell, the kernel lets be opened anyway.
fn allow(rules: &mut RulesetCreated, path: &Path, access: BitFlags<AccessFs>) {
    let access = if path.is_dir() { access } else { access & AccessFs::from_file(NEWEST) };
    if let Ok(file) = PathFd::new(path) {
        let _ = rules.add_rule(PathBeneath::new(file, access));
    }
}

fn keep_calls(rights: &Rights) -> Result<(), seccompiler::Error> {
    let arch: TargetArch = std::env::consts::ARCH.try_into()?;
    let more: &[i64] = if rights.has_panes { &[libc::SYS_kill] } else { &[] };
    let kept = CALLS.iter().chain(OF_ARCHITECTURE).chain(more).map(|call| (*call, Vec::new()));
    // As if the kernel were older: libraries then fall back to calls that they may make.
    let refused = SeccompAction::Errno(libc::ENOSYS as u32);
    let filter = SeccompFilter::new(kept.collect(), refused, SeccompAction::Allow, arch)?;
    let program: BpfProgram = filter.try_into()?;
    seccompiler::apply_filter(&program)
}

/// Calls of a program that reads, computes on threads, and writes.
const CALLS: &[i64] = &[
    // Memory; those of policies are of a malloc that may be preloaded.
    libc::SYS_brk,
    libc::SYS_madvise,
    libc::SYS_mbind,
    libc::SYS_membarrier,
    libc::SYS_mincore,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_get_mempolicy,
    libc::SYS_set_mempolicy,
    // Files: opening is Landlock's to decide.
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_copy_file_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fadvise64,
    libc::SYS_fallocate,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_fcntl,
    libc::SYS_fdatasync,
    libc::SYS_flock,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_fsync,
    libc::SYS_ftruncate,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_ioctl,
    libc::SYS_linkat,
    libc::SYS_lseek,
    libc::SYS_memfd_create,
    libc::SYS_mkdirat,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_pipe2,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_read,
    libc::SYS_readlinkat,
    libc::SYS_readv,
    libc::SYS_renameat2,
    libc::SYS_sendfile,
    libc::SYS_splice,
    libc::SYS_statfs,
    libc::SYS_statx,
    libc::SYS_umask,
    libc::SYS_unlinkat,
    libc::SYS_write,
    libc::SYS_writev,
    // Threads, signals to oneself, time.
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_get_robust_list,
    libc::SYS_getcpu,
    libc::SYS_getitimer,
    libc::SYS_getrandom,
    libc::SYS_gettimeofday,
    libc::SYS_nanosleep,
    libc::SYS_prctl,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_setitimer,
    libc::SYS_sigaltstack,
    libc::SYS_tgkill,
    // Waiting.
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_eventfd2,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_signalfd4,
    libc::SYS_socketpair,
    libc::SYS_recvfrom,
    libc::SYS_sendto,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    // What a program asks about itself: its user, process, limits and machine.
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getpgid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getrusage,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_prlimit64,
    libc::SYS_sysinfo,
    libc::SYS_uname,
];

/// More calls of these kinds, which not all architectures have or name.
#[cfg(target_arch = "x86_64")]
const OF_ARCHITECTURE: &[i64] = &[
    libc::SYS_access,
    libc::SYS_arch_prctl,
    libc::SYS_chmod,
    libc::SYS_dup2,
    libc::SYS_epoll_wait,
    libc::SYS_getdents,
    libc::SYS_getpgrp,
    libc::SYS_getrlimit,
    libc::SYS_lstat,
    libc::SYS_mkdir,
    libc::SYS_open,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_readlink,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_rmdir,
    libc::SYS_select,
    libc::SYS_stat,
    libc::SYS_time,
    libc::SYS_unlink,
];
#[cfg(target_arch = "aarch64")]
const OF_ARCHITECTURE: &[i64] = &[
    // renameat, which the crate libc does not name there.
    38,
];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const OF_ARCHITECTURE: &[i64] = &[];

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{ErrorKind, Read};
    use std::net::TcpStream;
    use std::os::unix::net::UnixStream;
    use std::process::Command;
    use std::thread;

    use super::*;

    /// Both are of the thread that asks: the others of this test keep what they have.
    fn confined(rights: Rights, case: impl FnOnce() + Send + 'static) {
        let test = move || match keep(&rights) {
            Some(lacking) => eprintln!("SKIPPED: confined: {lacking}"),
            None => case(),
        };
        thread::spawn(test).join().unwrap();
    }

    #[test]
    fn what_was_given_up_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["input", "secret", "out", "of/the"] {
            fs::create_dir_all(path(name).parent().unwrap()).unwrap();
            fs::write(path(name), name).unwrap();
        }
        let rights = Rights::default().reading([path("input"), path("none")]);
        let (input, secret, new) = (path("input"), path("secret"), path("new"));
        confined(rights, move || {
            let mut text = String::new();
            File::open(&input).unwrap().read_to_string(&mut text).unwrap();
            assert_eq!(text, "input");
            let denied = |error: std::io::Error| error.kind() == ErrorKind::PermissionDenied;
            assert!(denied(File::open(&secret).unwrap_err()));
            assert!(denied(File::open("/etc/passwd").unwrap_err()));
            assert!(denied(fs::write(&input, "").unwrap_err()));
            assert!(denied(fs::write(&new, "").unwrap_err()));
            assert!(denied(fs::remove_file(&secret).unwrap_err()));
            assert!(Command::new("/bin/true").spawn().is_err());
            assert!(
                TcpStream::connect("127.0.0.1:1").unwrap_err().raw_os_error() == Some(libc::ENOSYS)
            );
            assert!(UnixStream::connect(&input).unwrap_err().raw_os_error() == Some(libc::ENOSYS));
            // SAFETY: asks whether there is a process.
            assert_eq!(unsafe { libc::kill(1, 0) }, -1);
            // Threads work as ever.
            assert_eq!(
                thread::spawn(|| thread::available_parallelism().is_ok()).join().ok(),
                Some(true)
            );
        });
    }

    #[test]
    fn what_is_left_is_enough() {
        let folder = tempfile::tempdir().unwrap();
        let tree = folder.path().join("tree");
        fs::create_dir_all(tree.join("proc")).unwrap();
        fs::write(tree.join("proc/version"), "x").unwrap();
        let page = folder.path().join("page");
        let rights = Rights::default().reading([&tree]).writing([&page, Path::new("/dev/null")]);
        confined(rights.unpacking(), move || {
            assert_eq!(fs::read_to_string(tree.join("proc/version")).unwrap(), "x");
            assert_eq!(fs::read_dir(&tree).unwrap().count(), 1);
            let part = page.with_extension("part");
            fs::write(&part, "page").unwrap();
            fs::rename(&part, &page).unwrap();
            File::create(&page).unwrap().set_len(7).unwrap();
            fs::write("/dev/null", "x").unwrap();
            let scratch = tempfile::tempfile().unwrap();
            scratch.set_len(4096).unwrap();
        });
    }
}
