//! What no safe wrapper covers: eight system calls, and symbols of the C library. All other calls go through `rustix`.

use std::ffi::{CStr, c_int, c_long, c_void};
use std::io;
use std::ptr::{self, NonNull};
use std::sync::Once;
use std::time::Duration;

use nearpage::{CpuId, NodeId};

/// What the kernel answered to a system call.
fn answer(answer: c_long) -> io::Result<()> {
    if answer >= 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A policy of `mbind(2)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NodePolicy {
    /// `MPOL_BIND`.
    Bind,
    /// `MPOL_PREFERRED`.
    Preferred,
}

/// `mbind(start, bytes, policy, {node})`: where the kernel places the pages of a range.
pub(crate) fn mbind(
    start: NonNull<u8>,
    bytes: usize,
    policy: NodePolicy,
    node: NodeId,
) -> io::Result<()> {
    const BITS: usize = libc::c_ulong::BITS as usize;
    let policy = match policy {
        NodePolicy::Bind => libc::MPOL_BIND,
        NodePolicy::Preferred => libc::MPOL_PREFERRED,
    };
    let mut mask = vec![0 as libc::c_ulong; node.0 as usize / BITS + 1];
    mask[node.0 as usize / BITS] = 1 << (node.0 as usize % BITS);
    // The kernel reads one bit less than it is told (`get_nodes`, man 2 mbind: "maxnode").
    let maxnode = mask.len() * BITS + 1;
    // SAFETY: mbind reads `maxnode - 1` bits of the mask and changes how the kernel will place the pages
    // of a range, not what is in them.
    answer(unsafe {
        libc::syscall(libc::SYS_mbind, start.as_ptr(), bytes, policy, mask.as_ptr(), maxnode, 0)
    })
}

/// Asks whether `mbind` is granted: binds nothing.
pub(crate) fn mbind_nothing() -> io::Result<()> {
    const NONE: c_long = 0;
    // SAFETY: binds the 0 bytes from address 0 on to the default policy: nothing.
    answer(unsafe {
        libc::syscall(libc::SYS_mbind, NONE, NONE, libc::MPOL_DEFAULT, NONE, NONE, NONE)
    })
}

/// `move_pages(2)` without nodes to move to: writes the node of each page, or a negative errno.
pub(crate) fn nodes_of_pages(pages: &[NonNull<u8>], nodes: &mut [c_int]) -> io::Result<()> {
    assert_eq!(pages.len(), nodes.len());
    let (this_process, no_nodes, no_flags) = (0, ptr::null::<c_int>(), 0);
    // SAFETY: without nodes to move to, move_pages reads the addresses and writes as many numbers; it does not
    // touch what lies at the addresses.
    answer(unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            this_process,
            pages.len(),
            pages.as_ptr(),
            no_nodes,
            nodes.as_mut_ptr(),
            no_flags,
        )
    })
}

/// Asks whether `membarrier` is granted: which commands there are. `rustix` drops the reason of a refusal here.
pub(crate) fn query_membarrier() -> io::Result<()> {
    const MEMBARRIER_CMD_QUERY: c_long = 0;
    const NONE: c_long = 0;
    // SAFETY: tells which commands there are.
    answer(unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_CMD_QUERY, NONE, NONE) })
}

/// `membarrier(PRIVATE_EXPEDITED_RSEQ)` of one CPU: aborts the restartable sequence that runs there. `rustix` wants a CPU
/// that the machine has; here the kernel says whether it has this one.
pub(crate) fn abort_sequences_on(cpu: CpuId) -> io::Result<()> {
    /// `linux/membarrier.h`, 5.10.
    const MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ: c_int = 1 << 7;
    const MEMBARRIER_CMD_FLAG_CPU: libc::c_uint = 1;
    let command = MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ;
    // SAFETY: membarrier takes three integers and touches no memory of ours.
    answer(unsafe {
        libc::syscall(libc::SYS_membarrier, command, MEMBARRIER_CMD_FLAG_CPU, cpu.0 as c_int)
    })
}

/// `futex(address, FUTEX_WAKE, 1)`: wakes a thread that sleeps on the word at an address. There need be no such word,
/// which `rustix` asks for.
pub(crate) fn futex_wake_one(address: usize) {
    // SAFETY: the kernel takes the address as a name and reads nothing from it.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            ptr::without_provenance::<u32>(address),
            libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
            1,
        );
    }
}

/// The CPU time of this thread so far.
pub(crate) fn thread_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes the time to a place of ours. The clock of a thread is there wherever there are threads.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// `mincore(2)`: writes for each page of the kernel's size whether it has memory, in the lowest bit.
pub(crate) fn mincore(start: NonNull<u8>, bytes: usize, pages: &mut [u8]) -> io::Result<()> {
    assert!(pages.len() >= bytes.div_ceil(rustix::param::page_size()));
    // SAFETY: mincore writes a byte for each page of the range, for which there is room, and touches nothing that is in it.
    answer(unsafe { libc::mincore(start.as_ptr().cast(), bytes, pages.as_mut_ptr()) }.into())
}

/// The CPU that this thread runs on, as the C library tells it, which may know without asking the kernel.
#[inline]
pub(crate) fn sched_getcpu() -> CpuId {
    // SAFETY: sched_getcpu reads; it has no preconditions.
    let cpu = unsafe { libc::sched_getcpu() };
    // It fails on kernels that have no such call; no CPU has the id that -1 becomes.
    CpuId(cpu as u32)
}

/// Where glibc registered `struct rseq`, relative to the thread pointer, and how large it is; `None` if the C library has
/// no such symbols.
pub(crate) fn rseq_of_library() -> Option<(isize, u32)> {
    let offset = symbol(c"__rseq_offset")?;
    let size = symbol(c"__rseq_size")?;
    // SAFETY: glibc declares `const ptrdiff_t __rseq_offset` and `const unsigned int __rseq_size`
    // (sys/rseq.h, 2.35), constant once the program runs.
    Some(unsafe { (*offset.cast::<isize>(), *size.cast::<u32>()) })
}

fn symbol(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: dlsym with a terminated name; RTLD_DEFAULT searches the loaded objects.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!address.is_null()).then_some(address)
}

/// Runs `act` while no signal is delivered to this thread; a thread that it starts inherits that.
#[cfg(feature = "stats")]
pub(crate) fn with_signals_blocked<R>(act: impl FnOnce() -> R) -> R {
    let mut before = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: the places are there; zeroes are a set, and `pthread_sigmask` fails only for an unknown operation.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
    }
    let result = act();
    // SAFETY: as above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut()) };
    result
}

/// Has functions called before each fork, and after it in parent and child; once in the life of the process.
pub(crate) fn at_forks(before: extern "C" fn(), after: extern "C" fn()) {
    static HANDLERS: Once = Once::new();
    HANDLERS.call_once(|| {
        // SAFETY: the handlers are functions of this program, and stay as long as it.
        let answer = unsafe { libc::pthread_atfork(Some(before), Some(after), Some(after)) };
        assert_eq!(answer, 0, "pthread_atfork has no memory");
    });
}
