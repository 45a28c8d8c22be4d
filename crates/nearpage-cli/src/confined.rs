//! Rights that a command gives up before it reads what a stranger made.
//!
//! Landlock leaves it its inputs and what it must know of this machine, to be read: it writes to descriptors alone, which its
//! [clerk](crate::outputs) gives it. Seccomp leaves it the calls that reading, computing and writing need, with the arguments that they need:
//! no file is opened to be written, no program started, no process looked into or signalled, no socket made. An error in a parser has no
//! more than that. The clerk has the folders of the outputs, and no more calls than it needs either.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use seccompiler::SeccompCmpArgLen::{Dword, Qword};
use seccompiler::SeccompCmpOp::{Eq, MaskedEq};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

use crate::outputs::{Clerk, Desk, Kind};

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
    outputs: Vec<(Kind, PathBuf)>,
    unpacks: bool,
    has_panes: bool,
}

impl Rights {
    /// Reads files or folders; names of what comes along, and `-`, are no files.
    pub(crate) fn reading<P: AsRef<Path>>(mut self, paths: impl IntoIterator<Item = P>) -> Self {
        self.reads.extend(paths.into_iter().map(|path| path.as_ref().to_owned()));
        self
    }

    /// Makes or replaces files; `-` is none.
    pub(crate) fn writing<P: AsRef<Path>>(
        mut self,
        kind: Kind,
        paths: impl IntoIterator<Item = P>,
    ) -> Self {
        let paths = paths.into_iter().map(|path| path.as_ref().to_owned());
        let files = paths.filter(|path| path.as_os_str() != "-");
        self.outputs.extend(files.map(|path| (kind, path)));
        self
    }

    /// What it reads.
    pub(crate) fn inputs(&self) -> &[PathBuf] {
        &self.reads
    }

    /// Unpacks into files without a name.
    pub(crate) fn unpacking(self) -> Self {
        Rights { unpacks: true, ..self }
    }

    /// Shows panes on a terminal, and stops with its group.
    pub(crate) fn with_panes(self, has_panes: bool) -> Self {
        Rights { has_panes, ..self }
    }
}

/// What became of rights.
#[derive(Debug)]
pub(crate) struct Kept {
    /// Who makes the outputs, if there are any.
    pub(crate) clerk: Option<Clerk>,
    /// What this kernel did not take.
    pub(crate) lacking: Option<String>,
}

/// Keeps these rights, in this thread and in those that it starts.
///
/// # Errors
///
/// No second process can be started: nothing was given up.
pub(crate) fn keep(rights: &Rights) -> io::Result<Kept> {
    close_inherited(rights);
    let desk = Desk::new(&rights.outputs);
    // It is read once more when it is written.
    let folders: Vec<_> = desk.folders().filter_map(|folder| PathFd::new(folder).ok()).collect();
    let clerk = match rights.outputs.is_empty() && !rights.unpacks {
        true => None,
        false => Some(Clerk::start(&rights.outputs, desk, || confine_clerk(rights))?),
    };
    let files = keep_files(rights, folders);
    let is_beneath = files.as_ref().is_ok_and(|status| *status != RulesetStatus::NotEnforced);
    let calls = rules_of_reader(rights, is_beneath).and_then(|rules| keep_calls(CALLS, rules));
    let files = match files {
        Ok(RulesetStatus::NotEnforced) => Some("this kernel has no Landlock".to_owned()),
        Ok(_) => None,
        Err(error) => Some(format!("Landlock: {error}")),
    };
    let calls = calls.err().map(|error| format!("seccomp: {error}"));
    let lacking: Vec<String> = files.into_iter().chain(calls).collect();
    Ok(Kept { clerk, lacking: (!lacking.is_empty()).then(|| lacking.join("; ")) })
}

/// Closes what the program that started this one left open, a connection of an editor or of a build server, say: not the first three,
/// and not what the command line names, as `<(...)` of a shell does.
fn close_inherited(rights: &Rights) {
    let Ok(open) = fs::read_dir("/proc/self/fd") else { return };
    let outputs = rights.outputs.iter().map(|(_, path)| path);
    let is_named = |descriptor: i32| {
        let name = format!("fd/{descriptor}");
        rights.reads.iter().chain(outputs.clone()).any(|path| path.ends_with(&name))
    };
    let open = open.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let open: Vec<i32> =
        open.filter(|descriptor| *descriptor > 2 && !is_named(*descriptor)).collect();
    for descriptor in open {
        // SAFETY: asks for flags; a descriptor that is closed by now is refused.
        let flags = unsafe { libc::fcntl(descriptor, libc::F_GETFD) };
        // What this program opened closes on exec, so no value of it has this number.
        if flags >= 0 && flags & libc::FD_CLOEXEC == 0 {
            // SAFETY: nobody here knows the descriptor.
            unsafe { libc::close(descriptor) };
        }
    }
}

fn handled() -> Result<Ruleset, RulesetError> {
    Ruleset::default()
        .handle_access(AccessFs::from_all(NEWEST))?
        .handle_access(AccessNet::from_all(NEWEST))
}

fn keep_files(rights: &Rights, folders: Vec<PathFd>) -> Result<RulesetStatus, RulesetError> {
    let mut rules = handled()?;
    if !rights.has_panes {
        rules = rules.scope(Scope::from_all(NEWEST))?;
    }
    let mut rules = rules.create()?;
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    for path in ALWAYS_READ.iter().map(Path::new).chain(rights.reads.iter().map(PathBuf::as_path)) {
        allow(&mut rules, path, read);
    }
    for folder in folders {
        let _ = (&mut rules).add_rule(PathBeneath::new(folder, read));
    }
    if rights.has_panes {
        allow(&mut rules, Path::new("/dev/tty"), read | AccessFs::WriteFile | AccessFs::IoctlDev);
    }
    Ok(rules.restrict_self()?.ruleset)
}

/// What this kernel does not take, the command's process tells.
fn confine_clerk(rights: &Rights) {
    let _ = keep_folders(rights);
    let more = OF_CLERK.iter().map(|call| (*call, Vec::new())).collect();
    let _ = keep_calls(CALLS, more);
}

fn keep_folders(rights: &Rights) -> Result<RulesetStatus, RulesetError> {
    let mut rules = handled()?.create()?;
    let make = AccessFs::ReadFile
        | AccessFs::ReadDir
        | AccessFs::WriteFile
        | AccessFs::Truncate
        | AccessFs::MakeReg
        | AccessFs::MakeDir
        | AccessFs::RemoveFile
        | AccessFs::RemoveDir;
    for (_, path) in &rights.outputs {
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
    if rights.unpacks {
        allow(&mut rules, &std::env::temp_dir(), make);
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

/// Calls, each with what its arguments may be; any without rules.
type Rules = Vec<(i64, Vec<SeccompRule>)>;

fn keep_calls(calls: &[i64], more: Rules) -> Result<(), seccompiler::Error> {
    let arch: TargetArch = std::env::consts::ARCH.try_into()?;
    let kept = calls.iter().chain(OF_ARCHITECTURE).map(|call| (*call, Vec::new())).chain(more);
    // As if the kernel were older: libraries then fall back to calls that they may make.
    let refused = SeccompAction::Errno(libc::ENOSYS as u32);
    let filter = SeccompFilter::new(kept.collect(), refused, SeccompAction::Allow, arch)?;
    let program: BpfProgram = filter.try_into()?;
    seccompiler::apply_filter(&program)
}

/// Calls whose arguments decide whether they reach what is not this process's own. Landlock has a say in `openat2`, whose
/// arguments are out of seccomp's sight: without it, the call is refused.
fn rules_of_reader(rights: &Rights, has_landlock: bool) -> Result<Rules, seccompiler::Error> {
    type Condition = (u8, SeccompCmpArgLen, SeccompCmpOp, u64);
    let rule = |conditions: &[Condition]| -> Result<SeccompRule, seccompiler::Error> {
        let condition = |(at, length, is, value): &Condition| {
            SeccompCondition::new(*at, length.clone(), is.clone(), *value)
        };
        let conditions: Result<_, _> = conditions.iter().map(condition).collect();
        Ok(SeccompRule::new(conditions?)?)
    };
    let any_of = |at: u8, values: &[u64]| -> Result<Vec<SeccompRule>, seccompiler::Error> {
        values.iter().map(|value| rule(&[(at, Dword, Eq, *value)])).collect()
    };
    let own = u64::from(std::process::id());
    let threads = (libc::CLONE_VM | libc::CLONE_THREAD) as u64;
    let changes = (libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC) as u64;
    let opens = |at: u8| -> Result<Vec<SeccompRule>, seccompiler::Error> {
        let mut rules = vec![rule(&[(at, Dword, MaskedEq(changes), libc::O_RDONLY as u64)])?];
        if rights.has_panes {
            // The terminal: Landlock leaves nothing else to be written.
            rules.push(rule(&[(at, Dword, MaskedEq(changes), libc::O_RDWR as u64)])?);
        }
        Ok(rules)
    };
    let (asks, sets) =
        ([libc::TCGETS, libc::TCGETS2, libc::TIOCGWINSZ], [libc::TCSETS, libc::TCSETS2]);
    let mut requests = [&asks[..], &[libc::FIONREAD, libc::FIONBIO, libc::FIOCLEX]].concat();
    let mut kills = vec![rule(&[(0, Dword, Eq, own)])?];
    if rights.has_panes {
        // At once, when output has drained, and also without what was typed.
        requests.extend(sets.into_iter().flat_map(|set| [set, set + 1, set + 2]));
        kills.push(rule(&[(0, Dword, Eq, 0), (1, Dword, Eq, libc::SIGTSTP as u64)])?);
    }
    // Their upper halves are cut off, as by the kernel.
    let requests: Vec<u64> =
        requests.into_iter().map(|request| u64::from(request as u32)).collect();
    let duplicates = [libc::F_DUPFD, libc::F_DUPFD_CLOEXEC, libc::F_GETFD, libc::F_SETFD];
    let commands: Vec<u64> =
        duplicates.into_iter().chain([libc::F_GETFL, libc::F_SETFL]).map(|of| of as u64).collect();
    let mut rules = vec![
        (libc::SYS_openat, opens(2)?),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_open, opens(1)?),
        (libc::SYS_clone, vec![rule(&[(0, Qword, MaskedEq(threads), threads)])?]),
        // Not F_SETOWN, by which a file signals another process.
        (libc::SYS_fcntl, any_of(1, &commands)?),
        // Not TIOCSTI and TIOCLINUX, which type for the shell.
        (libc::SYS_ioctl, any_of(1, &requests)?),
        (libc::SYS_kill, kills),
        (libc::SYS_tgkill, any_of(0, &[own])?),
        (libc::SYS_prctl, any_of(0, &[libc::PR_SET_NAME as u64, libc::PR_SET_VMA as u64])?),
        // Own limits are asked for, and not changed.
        (
            libc::SYS_prlimit64,
            vec![
                rule(&[(0, Dword, Eq, 0), (2, Qword, Eq, 0)])?,
                rule(&[(0, Dword, Eq, own), (2, Qword, Eq, 0)])?,
            ],
        ),
        (libc::SYS_sched_setaffinity, any_of(0, &[0])?),
        // No address: what is sent goes to whoever has the other end.
        (libc::SYS_sendto, vec![rule(&[(4, Qword, Eq, 0)])?]),
        (
            libc::SYS_socketpair,
            vec![rule(&[
                (0, Dword, Eq, libc::AF_UNIX as u64),
                (1, Dword, MaskedEq(0xf), libc::SOCK_STREAM as u64),
            ])?],
        ),
    ];
    if has_landlock {
        rules.push((libc::SYS_openat2, Vec::new()));
    }
    Ok(rules)
}

/// What makes, names and removes files, beside what a reader may, and answers.
const OF_CLERK: &[i64] = &[
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_fcntl,
    libc::SYS_linkat,
    libc::SYS_mkdirat,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_prctl,
    libc::SYS_renameat2,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_umask,
    libc::SYS_unlinkat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mkdir,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_open,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rename,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_renameat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rmdir,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
    // renameat, which the crate libc does not name there.
    #[cfg(target_arch = "aarch64")]
    38,
];

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
    // Files that are open, and what files there are.
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_copy_file_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fadvise64,
    libc::SYS_fallocate,
    libc::SYS_fdatasync,
    libc::SYS_flock,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_fsync,
    libc::SYS_ftruncate,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_lseek,
    libc::SYS_memfd_create,
    libc::SYS_newfstatat,
    libc::SYS_pipe2,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_read,
    libc::SYS_readlinkat,
    libc::SYS_readv,
    libc::SYS_sendfile,
    libc::SYS_splice,
    libc::SYS_statfs,
    libc::SYS_statx,
    libc::SYS_write,
    libc::SYS_writev,
    // Threads, signals to oneself, time.
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_getcpu,
    libc::SYS_getitimer,
    libc::SYS_getrandom,
    libc::SYS_gettimeofday,
    libc::SYS_nanosleep,
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
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_setitimer,
    libc::SYS_sigaltstack,
    // Waiting.
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_eventfd2,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_signalfd4,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
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
    libc::SYS_sysinfo,
    libc::SYS_uname,
];

/// More calls of these kinds, which not all architectures have or name.
#[cfg(target_arch = "x86_64")]
const OF_ARCHITECTURE: &[i64] = &[
    libc::SYS_access,
    libc::SYS_arch_prctl,
    libc::SYS_dup2,
    libc::SYS_epoll_wait,
    libc::SYS_getdents,
    libc::SYS_getpgrp,
    libc::SYS_getrlimit,
    libc::SYS_lstat,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_readlink,
    libc::SYS_select,
    libc::SYS_stat,
    libc::SYS_time,
];
#[cfg(not(target_arch = "x86_64"))]
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
        let test = move || {
            let Kept { clerk, lacking } = keep(&rights).unwrap();
            match lacking {
                Some(lacking) => eprintln!("SKIPPED: confined: {lacking}"),
                None => case(),
            }
            drop(clerk);
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
        let rights = rights.writing(Kind::Page, [path("out")]).unpacking();
        let (input, secret, new) = (path("input"), path("secret"), path("new"));
        confined(rights, move || {
            let mut text = String::new();
            File::open(&input).unwrap().read_to_string(&mut text).unwrap();
            assert_eq!(text, "input");
            let denied = |error: io::Error| error.kind() == ErrorKind::PermissionDenied;
            let unknown = |error: io::Error| error.raw_os_error() == Some(libc::ENOSYS);
            assert!(denied(File::open(&secret).unwrap_err()));
            assert!(denied(File::open("/etc/passwd").unwrap_err()));
            // Neither what is read nor the folder of an output can be written.
            assert!(unknown(fs::write(&input, "").unwrap_err()));
            assert!(unknown(fs::write(&new, "").unwrap_err()));
            assert!(unknown(fs::remove_file(&secret).unwrap_err()));
            assert!(unknown(fs::rename(&input, &new).unwrap_err()));
            assert!(unknown(
                fs::set_permissions(&input, fs::metadata(&input).unwrap().permissions())
                    .unwrap_err()
            ));
            assert!(unknown(tempfile::tempfile().unwrap_err()));
            assert!(Command::new("/bin/true").spawn().is_err());
            assert!(unknown(TcpStream::connect("127.0.0.1:1").unwrap_err()));
            assert!(unknown(UnixStream::connect(&input).unwrap_err()));
            // Threads work as ever.
            assert_eq!(
                thread::spawn(|| thread::available_parallelism().is_ok()).join().ok(),
                Some(true)
            );
        });
    }

    /// Landlock holds where seccomp cannot look: `openat2` has its arguments in memory.
    #[test]
    fn nothing_is_written_by_calls_with_arguments_in_memory() {
        use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
        use rustix::io::Errno;

        let folder = tempfile::tempdir().unwrap();
        let (input, new) = (folder.path().join("input"), folder.path().join("new"));
        fs::write(&input, "input").unwrap();
        let rights = Rights::default().reading([folder.path()]).writing(Kind::Page, [&new]);
        confined(rights, move || {
            let open = |path: &Path, flags: OFlags| {
                let makes = flags
                    .intersects(OFlags::CREATE | OFlags::TMPFILE.difference(OFlags::DIRECTORY));
                let mode = if makes { Mode::RUSR } else { Mode::empty() };
                openat2(CWD, path, flags, mode, ResolveFlags::empty()).map(drop)
            };
            assert_eq!(open(&input, OFlags::RDONLY), Ok(()));
            assert_eq!(open(&input, OFlags::WRONLY), Err(Errno::ACCESS));
            assert_eq!(open(&input, OFlags::RDONLY | OFlags::TRUNC), Err(Errno::ACCESS));
            assert_eq!(open(&new, OFlags::RDONLY | OFlags::CREATE), Err(Errno::ACCESS));
            assert_eq!(open(Path::new("/tmp"), OFlags::RDWR | OFlags::TMPFILE), Err(Errno::ACCESS));
        });
    }

    /// What `calls` gives is refused by seccomp: the kernel of a test knows all of it.
    fn refused(rights: Rights, calls: &'static [(&'static str, i64, [i64; 5])]) {
        confined(rights, move || {
            for (name, number, [a, b, c, d, e]) in calls {
                // SAFETY: seccomp refuses it; if it did not, the kernel would find the arguments wrong, or that nothing is to be done.
                let result = unsafe { libc::syscall(*number, *a, *b, *c, *d, *e, -1i64) };
                let error = io::Error::last_os_error();
                if result == 0 && name.starts_with("fork") {
                    // SAFETY: a child that there should not be ends.
                    unsafe { libc::_exit(1) };
                }
                let is_refused = result == -1 && error.raw_os_error() == Some(libc::ENOSYS);
                assert!(is_refused, "{name}: {result}, {error}");
            }
        });
    }

    const ANY: [i64; 5] = [-1; 5];
    const WRITE: i64 = (libc::O_WRONLY | libc::O_CREAT) as i64;

    #[test]
    fn no_other_process_is_reached() {
        refused(
            Rights::default(),
            &[
                ("ptrace", libc::SYS_ptrace, ANY),
                ("process_vm_readv", libc::SYS_process_vm_readv, ANY),
                ("process_vm_writev", libc::SYS_process_vm_writev, ANY),
                ("process_madvise", libc::SYS_process_madvise, ANY),
                ("kcmp", libc::SYS_kcmp, ANY),
                ("move_pages", libc::SYS_move_pages, ANY),
                ("migrate_pages", libc::SYS_migrate_pages, ANY),
                ("get_robust_list", libc::SYS_get_robust_list, ANY),
                ("kill", libc::SYS_kill, [1, 0, 0, 0, 0]),
                ("kill of all", libc::SYS_kill, [-1, 0, 0, 0, 0]),
                ("kill of the group", libc::SYS_kill, [0, 0, 0, 0, 0]),
                ("tkill", libc::SYS_tkill, [1, 0, 0, 0, 0]),
                ("tgkill", libc::SYS_tgkill, [1, 1, 0, 0, 0]),
                ("rt_sigqueueinfo", libc::SYS_rt_sigqueueinfo, ANY),
                ("rt_tgsigqueueinfo", libc::SYS_rt_tgsigqueueinfo, ANY),
                ("timer_create", libc::SYS_timer_create, ANY),
                ("F_SETOWN", libc::SYS_fcntl, [0, libc::F_SETOWN as i64, 1, 0, 0]),
                ("F_SETSIG", libc::SYS_fcntl, [0, 10, 9, 0, 0]),
                ("pidfd_open", libc::SYS_pidfd_open, ANY),
                ("pidfd_send_signal", libc::SYS_pidfd_send_signal, ANY),
                ("pidfd_getfd", libc::SYS_pidfd_getfd, ANY),
                ("prlimit of another", libc::SYS_prlimit64, [1, 4, 0, 0, 0]),
                ("prlimit", libc::SYS_prlimit64, [0, 4, 1, 0, 0]),
                ("setpriority", libc::SYS_setpriority, ANY),
                ("ioprio_set", libc::SYS_ioprio_set, ANY),
                ("sched_setaffinity", libc::SYS_sched_setaffinity, [1, 0, 0, 0, 0]),
                ("sched_setattr", libc::SYS_sched_setattr, ANY),
                ("shmget", libc::SYS_shmget, ANY),
                ("msgget", libc::SYS_msgget, ANY),
                ("semget", libc::SYS_semget, ANY),
                ("mq_open", libc::SYS_mq_open, ANY),
            ],
        );
    }

    #[test]
    fn no_process_or_program_is_started() {
        refused(
            Rights::default(),
            &[
                ("execve", libc::SYS_execve, ANY),
                ("execveat", libc::SYS_execveat, ANY),
                ("fork by clone", libc::SYS_clone, [libc::SIGCHLD as i64, 0, 0, 0, 0]),
                ("fork that shares memory", libc::SYS_clone, [libc::CLONE_VM as i64, 0, 0, 0, 0]),
                ("clone3", libc::SYS_clone3, ANY),
                #[cfg(target_arch = "x86_64")]
                ("fork", libc::SYS_fork, ANY),
                ("unshare", libc::SYS_unshare, ANY),
                ("setns", libc::SYS_setns, ANY),
                ("setuid", libc::SYS_setuid, ANY),
                ("capset", libc::SYS_capset, ANY),
                ("personality", libc::SYS_personality, ANY),
            ],
        );
    }

    #[test]
    fn no_network_is_reached() {
        let (inet, unix) = (libc::AF_INET as i64, libc::AF_UNIX as i64);
        assert_eq!((inet, unix), (2, 1));
        refused(
            Rights::default(),
            &[
                ("socket", libc::SYS_socket, [2, 1, 0, 0, 0]),
                ("socket of files", libc::SYS_socket, [1, 1, 0, 0, 0]),
                ("netlink", libc::SYS_socket, [16, 3, 0, 0, 0]),
                ("socketpair that takes addresses", libc::SYS_socketpair, [1, 2, 0, 0, 0]),
                ("connect", libc::SYS_connect, ANY),
                ("bind", libc::SYS_bind, ANY),
                ("listen", libc::SYS_listen, ANY),
                ("accept4", libc::SYS_accept4, ANY),
                ("sendto an address", libc::SYS_sendto, ANY),
                ("sendmsg", libc::SYS_sendmsg, ANY),
                ("sendmmsg", libc::SYS_sendmmsg, ANY),
            ],
        );
    }

    #[test]
    fn no_file_is_made_or_changed() {
        refused(
            Rights::default(),
            &[
                ("open to write", libc::SYS_openat, [libc::AT_FDCWD as i64, 0, WRITE, 0, 0]),
                ("open to truncate", libc::SYS_openat, [-100, 0, libc::O_TRUNC as i64, 0, 0]),
                ("open to read and write", libc::SYS_openat, [-100, 0, libc::O_RDWR as i64, 0, 0]),
                (
                    "unnamed file",
                    libc::SYS_openat,
                    [-100, 0, (libc::O_TMPFILE | libc::O_RDWR) as i64, 0, 0],
                ),
                #[cfg(target_arch = "x86_64")]
                ("old open", libc::SYS_open, [0, WRITE, 0, 0, 0]),
                #[cfg(target_arch = "x86_64")]
                ("creat", libc::SYS_creat, ANY),
                ("fchmod", libc::SYS_fchmod, ANY),
                ("fchmodat", libc::SYS_fchmodat, ANY),
                ("fchown", libc::SYS_fchown, ANY),
                ("fchownat", libc::SYS_fchownat, ANY),
                ("truncate", libc::SYS_truncate, ANY),
                ("utimensat", libc::SYS_utimensat, ANY),
                ("setxattr", libc::SYS_setxattr, ANY),
                ("fsetxattr", libc::SYS_fsetxattr, ANY),
                ("linkat", libc::SYS_linkat, ANY),
                ("symlinkat", libc::SYS_symlinkat, ANY),
                ("mkdirat", libc::SYS_mkdirat, ANY),
                ("mknodat", libc::SYS_mknodat, ANY),
                ("renameat2", libc::SYS_renameat2, ANY),
                ("unlinkat", libc::SYS_unlinkat, ANY),
                ("open_by_handle_at", libc::SYS_open_by_handle_at, ANY),
                ("fanotify_init", libc::SYS_fanotify_init, ANY),
            ],
        );
    }

    #[test]
    fn the_terminal_and_the_kernel_are_left_alone() {
        refused(
            Rights::default(),
            &[
                ("TIOCSTI", libc::SYS_ioctl, [0, libc::TIOCSTI as i64, 0, 0, 0]),
                ("TIOCLINUX", libc::SYS_ioctl, [0, libc::TIOCLINUX as i64, 0, 0, 0]),
                (
                    "TIOCSTI, with an upper half",
                    libc::SYS_ioctl,
                    [0, libc::TIOCSTI as i64 | 1 << 32, 0, 0, 0],
                ),
                ("TIOCSCTTY", libc::SYS_ioctl, [0, libc::TIOCSCTTY as i64, 0, 0, 0]),
                ("TCSETS", libc::SYS_ioctl, [0, libc::TCSETS as i64, 0, 0, 0]),
                ("PR_SET_DUMPABLE", libc::SYS_prctl, [libc::PR_SET_DUMPABLE as i64, 0, 0, 0, 0]),
                ("PR_SET_PTRACER", libc::SYS_prctl, [libc::PR_SET_PTRACER as i64, 1, 0, 0, 0]),
                ("PR_SET_MM", libc::SYS_prctl, [libc::PR_SET_MM as i64, -1, 0, 0, 0]),
                ("perf_event_open", libc::SYS_perf_event_open, ANY),
                ("bpf", libc::SYS_bpf, ANY),
                ("io_uring_setup", libc::SYS_io_uring_setup, ANY),
                ("io_uring_enter", libc::SYS_io_uring_enter, ANY),
                ("keyctl", libc::SYS_keyctl, ANY),
                ("add_key", libc::SYS_add_key, ANY),
                ("request_key", libc::SYS_request_key, ANY),
                ("userfaultfd", libc::SYS_userfaultfd, ANY),
                ("mount", libc::SYS_mount, ANY),
                ("umount2", libc::SYS_umount2, ANY),
                ("fsopen", libc::SYS_fsopen, ANY),
                ("move_mount", libc::SYS_move_mount, ANY),
                ("pivot_root", libc::SYS_pivot_root, ANY),
                ("chroot", libc::SYS_chroot, ANY),
                ("init_module", libc::SYS_init_module, ANY),
                ("finit_module", libc::SYS_finit_module, ANY),
                ("reboot", libc::SYS_reboot, ANY),
                ("swapon", libc::SYS_swapon, ANY),
                ("syslog", libc::SYS_syslog, ANY),
                ("acct", libc::SYS_acct, ANY),
                ("setrlimit", libc::SYS_setrlimit, ANY),
                ("clock_settime", libc::SYS_clock_settime, ANY),
                ("seccomp", libc::SYS_seccomp, ANY),
            ],
        );
        // Panes change the mode of their terminal, and type for nobody either.
        refused(
            Rights::default().with_panes(true),
            &[
                ("TIOCSTI", libc::SYS_ioctl, [0, libc::TIOCSTI as i64, 0, 0, 0]),
                ("TIOCLINUX", libc::SYS_ioctl, [0, libc::TIOCLINUX as i64, 0, 0, 0]),
                ("kill of the group", libc::SYS_kill, [0, 9, 0, 0, 0]),
                ("open to write", libc::SYS_openat, [-100, 0, WRITE, 0, 0]),
            ],
        );
    }

    #[test]
    fn what_is_left_is_enough() {
        let folder = tempfile::tempdir().unwrap();
        let tree = folder.path().join("tree");
        fs::create_dir_all(tree.join("proc")).unwrap();
        fs::write(tree.join("proc/version"), "x").unwrap();
        let page = folder.path().join("page");
        let rights = Rights::default().reading([&tree]).writing(Kind::Page, [&page]);
        confined(rights.unpacking(), move || {
            assert_eq!(fs::read_to_string(tree.join("proc/version")).unwrap(), "x");
            assert_eq!(fs::read_dir(&tree).unwrap().count(), 1);
            let own = std::process::id() as i32;
            // SAFETY: asks whether there is this process.
            assert_eq!(unsafe { libc::kill(own, 0) }, 0);
            let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            // SAFETY: there is room for the answer.
            assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) }, 0);
            UnixStream::pair().unwrap().0.set_nonblocking(true).unwrap();
            thread::Builder::new().name("named".into()).spawn(|| {}).unwrap().join().unwrap();
        });
    }
}
