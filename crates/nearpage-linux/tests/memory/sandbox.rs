//! Sandboxes and limits: what is denied degrades, is a warning, and stays visible. Nothing is printed.
//!
//! Each test runs in a child of a process of its own, so that what it denies is denied to no other. That process makes no
//! memory: what a process found out about its system calls it does not ask again.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::Command;

use nearpage::{CpuId, DrainBusy, Gfp, Model, NodeId, Order, Request};
use nearpage_linux::{
    BindMode, HostMachine, HostNode, Memory, MemoryBuilder, MemoryError, RseqUnavailable,
    StorageInUse, SystemCall, Warning,
};

use super::affinity::{allowed_cpus, run_on};
use super::alone::{alone, is_own_machine};
use super::child_threads;

/// Runs `work` in a child process and returns what it wrote to standard error, to which a library writes nothing.
pub fn in_child(work: impl FnOnce()) -> String {
    let (status, text) = child(work);
    let lived = libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0;
    assert!(lived, "status {status:#x}: {text}");
    text
}

/// Runs `work` in a child process: how that ended, and what it wrote to standard error.
pub fn child(work: impl FnOnce()) -> (i32, String) {
    let errors = tempfile::NamedTempFile::new().unwrap();
    // SAFETY: the child allocates with glibc's malloc, which is made for this, and has no other thread's locks
    // to wait for: the parent's threads wait for their children.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork: {}", std::io::Error::last_os_error());
    if child == 0 {
        // SAFETY: the descriptors are open.
        unsafe {
            libc::alarm(60);
            libc::dup2(errors.as_file().as_raw_fd(), 2);
        }
        let failed = catch_unwind(AssertUnwindSafe(work)).is_err();
        // SAFETY: ends the child without the parent's exit handlers.
        unsafe { libc::_exit(failed.into()) };
    }
    let mut status = 0;
    // SAFETY: writes the status of our own child.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    let mut text = String::new();
    File::open(errors.path()).unwrap().read_to_string(&mut text).unwrap();
    (status, text)
}

/// Denies a system call to the calling process from now on: `EPERM`.
fn deny(call: SystemCall) {
    deny_with(call, libc::EPERM);
}

fn deny_with(call: SystemCall, errno: i32) {
    let number = match call {
        SystemCall::Mbind => libc::SYS_mbind,
        SystemCall::Membarrier => libc::SYS_membarrier,
        SystemCall::MovePages => libc::SYS_move_pages,
    };
    deny_number(number, errno);
}

fn deny_number(number: libc::c_long, errno: i32) {
    let statement = |code: u32, k: u32, jt, jf| libc::sock_filter { code: code as u16, jt, jf, k };
    let denied = libc::SECCOMP_RET_ERRNO | errno as u32;
    let mut filter = [
        // The number of the call is the first word of what a filter sees.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, number as u32, 0, 1),
        statement(libc::BPF_RET | libc::BPF_K, denied, 0, 0),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program is four statements, which the kernel checks and copies.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program), 0);
    }
}

fn limit(resource: libc::__rlimit_resource_t, bytes: u64) {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
    // SAFETY: reads the limit.
    assert_eq!(unsafe { libc::setrlimit(resource, &limit) }, 0);
}

/// Bytes that a line of /proc/self/statm counts, in pages: 0 all addresses, 5 data.
fn statm(field: usize) -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(field).unwrap().parse::<u64>().unwrap() * 4096
}

pub fn small() -> MemoryBuilder {
    Memory::builder().bytes_per_node(32 << 20)
}

/// Takes blocks of all kinds and gives them back.
pub fn work(memory: &Memory) {
    let mut blocks = Vec::new();
    for round in 0..5000 {
        let order = Order([0, 0, 0, 1, 3, 5][round % 6]);
        let mut block = memory.alloc(Request::new(order, Gfp::KERNEL)).unwrap();
        block[0] = round as u8;
        blocks.push(block);
        if round % 200 == 199 {
            blocks.clear();
        }
    }
}

#[test]
fn mbind_denied() {
    alone("sandbox::mbind_denied", || {
        let told = in_child(|| {
            deny(SystemCall::Mbind);
            for _ in 0..2 {
                let memory = small().build().unwrap();
                work(&memory);
                let binding = *memory.binding();
                assert_eq!(
                    (binding.requested, binding.effective),
                    (BindMode::Advisory, BindMode::None)
                );
                assert_eq!(binding.refused, Some(libc::EPERM));
                assert!(format!("{memory:?}").contains("refused: Some(1)"));
                assert_eq!(memory.warnings(), [Warning::MbindRefused { errno: libc::EPERM }]);
            }
            let error = small().bind(BindMode::Strict).build().unwrap_err();
            assert!(matches!(error, MemoryError::CannotBind { .. }), "{error}");
            assert!(small().bind(BindMode::None).build().unwrap().binding().refused.is_none());
            assert_eq!(SystemCall::Mbind.probe().unwrap_err().raw_os_error(), Some(libc::EPERM));
        });
        assert_eq!(told, "");
    });
}

#[test]
fn membarrier_denied() {
    alone("sandbox::membarrier_denied", || {
        let told = in_child(|| {
            deny(SystemCall::Membarrier);
            for _ in 0..2 {
                let memory = small().build().unwrap();
                work(&memory);
                let why = RseqUnavailable::NoMembarrier(libc::EPERM);
                assert_eq!(memory.storage(), StorageInUse::LockedBecause(why));
                assert!(memory.storage().to_string().contains("membarrier"));
                assert_eq!(memory.warnings(), [Warning::MembarrierRefused { errno: libc::EPERM }]);
                memory.drain_all().unwrap();
                assert_eq!(memory.check().unwrap().cached.0, 0);
            }
        });
        assert_eq!(told, "");
    });
}

#[test]
fn membarrier_denied_later() {
    alone("sandbox::membarrier_denied_later", || {
        in_child(|| {
            let memory = small().build().unwrap();
            work(&memory);
            deny(SystemCall::Membarrier);
            work(&memory);
            if memory.storage() == StorageInUse::Rseq {
                assert!(matches!(memory.drain_all(), Err(DrainBusy { .. })));
            }
            // A fork does not wait for what it cannot get, and the child goes on.
            in_child(|| work(&memory));
            work(&memory);
            assert_eq!(memory.check().unwrap().allocated.0, 0);
        });
    });
}

#[test]
fn move_pages_denied() {
    alone("sandbox::move_pages_denied", || {
        in_child(|| {
            deny(SystemCall::MovePages);
            let memory = small().build().unwrap();
            work(&memory);
            let error = memory.verify_placement(10).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EPERM));
        });
    });
}

/// The C library asks for restartable sequences when a process begins: one that is denied them from its first instruction on has
/// locks instead, and nothing else differs. A sandbox that denies them later is none that a process of glibc lives in: its next
/// thread ends it ("rseq registration failed").
#[test]
fn rseq_denied() {
    const DENIED: &str = "NEARPAGE_TEST_DENIED";
    if std::env::var_os(DENIED).is_some() {
        for model in [Model::LINUX_6_18, Model::NEARPAGE] {
            let memory = small().model(model).build().unwrap();
            work(&memory);
            assert!(matches!(memory.storage(), StorageInUse::LockedBecause(_)));
            child_threads::beside(3, || work(&memory), || work(&memory));
            // It is no warning: a machine without sequences is one like others. Who wants to know asks for the storage.
            assert_eq!(memory.warnings(), []);
            memory.drain_all().unwrap();
            let checked = memory.check().unwrap();
            assert_eq!((checked.allocated.0, checked.cached.0), (0, 0));
        }
        println!("{}", small().build().unwrap().storage());
        return;
    }
    alone("sandbox::rseq_denied", || {
        let has_rseq = small().build().unwrap().storage() == StorageInUse::Rseq;
        // Machines of our own are there to have the suites run on sequences too.
        assert!(has_rseq || !is_own_machine(), "no restartable sequences here");
        let mut denied = Command::new(std::env::current_exe().unwrap());
        denied.args(["--exact", "sandbox::rseq_denied", "--nocapture"]).env(DENIED, "1");
        // SAFETY: between fork and exec it makes two system calls.
        unsafe {
            denied.pre_exec(|| {
                deny_number(libc::SYS_rseq, libc::EPERM);
                Ok(())
            });
        }
        let ended = denied.output().unwrap();
        let told = String::from_utf8_lossy(&ended.stdout);
        let errors = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success() && told.contains("1 passed"), "{told}\n{errors}");
        let why = StorageInUse::LockedBecause(RseqUnavailable::NotRegistered).to_string();
        assert!(!has_rseq || told.contains(&why), "{told}");
    });
}

#[test]
fn addresses_limited() {
    alone("sandbox::addresses_limited", || {
        in_child(|| {
            limit(libc::RLIMIT_AS, statm(0) + (512 << 20));
            let error = small().reserve_per_node(4 << 30).build().unwrap_err();
            assert!(matches!(error, MemoryError::NoAddresses { .. }), "{error}");
            assert!(error.to_string().contains("ulimit -v"), "{error}");
            work(&small().build().unwrap());
        });
    });
}

/// A limit on data refuses in the same place as a commit limit does (`vm.overcommit_memory=2`): addresses are
/// there, and memory is not granted.
#[test]
fn memory_limited() {
    alone("sandbox::memory_limited", || {
        in_child(|| {
            let memory = small().reserve_per_node(1 << 30).build().unwrap();
            limit(libc::RLIMIT_DATA, statm(5) + (64 << 20));
            let node = memory.topology().nodes()[0].id;
            let before = memory.managed_pages(node);
            let error = memory.bring_online(node, 512 << 20).unwrap_err();
            assert!(matches!(error, MemoryError::NoMemory { .. }), "{error}");
            assert_eq!(memory.managed_pages(node), before, "nothing changed");
            memory.bring_online(node, 4 << 20).unwrap();
            work(&memory);
        });
    });
}

/// All that is known of the machine are CPUs that this process never runs on.
#[test]
fn cpus_beyond_the_topology() {
    alone("sandbox::cpus_beyond_the_topology", || {
        in_child(|| {
            let models = [Model::LINUX_6_18, Model::NEARPAGE];
            for (use_rseq, model) in
                [true, false].into_iter().flat_map(|rseq| models.map(|model| (rseq, model)))
            {
                let node = HostNode { id: NodeId(3), cpus: vec![CpuId(9000)], has_memory: true };
                let machine =
                    HostMachine { nodes: vec![node], distances: vec![10], emulated: true };
                let memory =
                    small().machine(machine).model(model).use_rseq(use_rseq).build().unwrap();
                work(&memory);
                assert_eq!(memory.check().unwrap().cached.0, 0, "nobody has a pageset here");
            }
        });
    });
}

/// The mask shrinks to one CPU and to others while threads work, as that of a cpuset does.
#[test]
fn masks_that_shrink() {
    alone("sandbox::masks_that_shrink", || {
        in_child(|| {
            let memory = small().build().unwrap();
            let cpus = allowed_cpus();
            let wander = || {
                for cpu in cpus.iter().cycle().take(12) {
                    run_on(&[*cpu]);
                    work(&memory);
                }
            };
            child_threads::beside(3, wander, || ());
            memory.drain_all().unwrap();
            let checked = memory.check().unwrap();
            assert_eq!((checked.allocated.0, checked.cached.0), (0, 0));
        });
    });
}

/// What the kernel says of a node that the cpuset does not allow any more (man 2 mbind: `EINVAL`), said by a filter.
#[test]
fn nodes_that_are_not_allowed_any_more() {
    alone("sandbox::nodes_that_are_not_allowed_any_more", || {
        let told = in_child(|| {
            let memory = small().reserve_per_node(64 << 20).build().unwrap();
            work(&memory);
            deny_with(SystemCall::Mbind, libc::EINVAL);
            let node = memory.topology().nodes()[0].id;
            memory.bring_online(node, 32 << 20).unwrap();
            work(&memory);
            let later = small().build().unwrap();
            work(&later);
            assert_eq!(later.binding().refused, Some(libc::EINVAL));
            assert_eq!(later.warnings(), [Warning::MbindRefused { errno: libc::EINVAL }]);
            let told = "mbind is refused (Invalid argument (os error 22)); the first thread to touch a page places it";
            assert_eq!(later.warnings()[0].to_string(), told);
            let error = small().bind(BindMode::Strict).build().unwrap_err();
            assert!(error.to_string().contains("the cpuset of this process"), "{error}");
        });
        assert_eq!(told, "");
    });
}

/// Commit limits as they are: `vm.overcommit_memory=2` for a moment, with so much room that nobody else notices. It changes
/// the whole machine and needs root, so only where the machine is the tests' own; elsewhere [`memory_limited`] stands for it.
#[test]
fn overcommit_forbidden() {
    alone("sandbox::overcommit_forbidden", || {
        if !is_own_machine() {
            return;
        }
        let _strict = Overcommit::forbid(100 << 30);
        in_child(|| {
            let memory = small().reserve_per_node(256 << 30).build().unwrap();
            work(&memory);
            let node = memory.topology().nodes()[0].id;
            let before = memory.managed_pages(node);
            let error = memory.bring_online(node, 200 << 30).unwrap_err();
            assert!(matches!(error, MemoryError::NoMemory { .. }), "{error}");
            assert!(error.to_string().contains("vm.overcommit_memory"), "{error}");
            assert_eq!(memory.managed_pages(node), before, "nothing changed");
            memory.bring_online(node, 64 << 20).unwrap();
            work(&memory);
        });
    });
}

/// Strict accounting; all as it was when dropped.
struct Overcommit(Vec<(&'static str, String)>);

impl Overcommit {
    fn forbid(room: u64) -> Self {
        let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap();
        let mut lines = meminfo.lines().filter_map(|line| line.strip_prefix("Committed_AS:"));
        let committed = lines.next().unwrap().trim().strip_suffix(" kB").unwrap();
        let kbytes = committed.parse::<u64>().unwrap() + (room >> 10);
        // Writing one of the two sizes clears the other, so the one in force comes back last.
        let files = ["overcommit_memory", "overcommit_kbytes", "overcommit_ratio"];
        let read =
            |name| (name, std::fs::read_to_string(Path::new("/proc/sys/vm").join(name)).unwrap());
        let before = Self(files.map(read).to_vec());
        set_sysctl("overcommit_kbytes", &kbytes.to_string());
        set_sysctl("overcommit_memory", "2");
        before
    }
}

fn set_sysctl(name: &str, value: &str) {
    std::fs::write(Path::new("/proc/sys/vm").join(name), value).unwrap();
}

impl Drop for Overcommit {
    fn drop(&mut self) {
        for (name, value) in &self.0 {
            if value.trim() != "0" || *name == "overcommit_memory" {
                set_sysctl(name, value);
            }
        }
    }
}

/// Caches belong to CPUs: threads that end leave nothing behind, however many there were.
#[test]
fn threads_that_end() {
    alone("sandbox::threads_that_end", || {
        in_child(|| {
            let memory = small().build().unwrap();
            let most_cached = |memory: &Memory| memory.check().unwrap().cached.0;
            let take_and_free = || drop((0..50).map(|_| memory.alloc_pages(1)).collect::<Vec<_>>());
            for _ in 0..20 {
                child_threads::beside(20, take_and_free, || ());
            }
            let after_few = most_cached(&memory);
            for _ in 0..20 {
                child_threads::beside(20, take_and_free, || ());
            }
            let bound = after_few.max(2000 * allowed_cpus().len() as u64);
            assert!(most_cached(&memory) <= bound, "{} cached", most_cached(&memory));
            memory.drain_all().unwrap();
            assert_eq!(memory.check().unwrap().cached.0, 0);
        });
    });
}
