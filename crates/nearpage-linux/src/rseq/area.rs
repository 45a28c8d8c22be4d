//! Where glibc registered `struct rseq`, and what the kernel must offer for drains from outside.

use core::fmt;
use std::sync::OnceLock;

use nearpage::units::CpuId;

/// `MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ`, `linux/membarrier.h`, 5.10.
const MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ: libc::c_int = 1 << 7;
/// `MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ`.
const MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ: libc::c_int = 1 << 8;
/// `MEMBARRIER_CMD_FLAG_CPU`: only the CPU given.
const MEMBARRIER_CMD_FLAG_CPU: libc::c_uint = 1;

/// The distance of every thread's `struct rseq` from its thread pointer.
#[derive(Clone, Copy, Debug)]
pub struct Area {
    offset: isize,
    /// Whether the kernel knows it.
    registered: bool,
}

/// Why restartable sequences cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unavailable {
    /// The C library has no `__rseq_offset`: glibc before 2.35, or another library.
    NoLibrarySupport,
    /// The C library did not register this thread: a kernel before 4.18, a sandbox or valgrind without
    /// rseq, or the tunable `glibc.pthread.rseq=0`.
    NotRegistered,
    /// `membarrier(PRIVATE_EXPEDITED_RSEQ)` is refused, with this errno: no drain from outside.
    NoMembarrier(i32),
    /// There are no sequences for this architecture.
    Architecture,
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLibrarySupport => {
                f.write_str("the C library does not register rseq (glibc 2.35 does)")
            }
            Self::NotRegistered => f.write_str("rseq is not registered for this thread"),
            Self::NoMembarrier(errno) => write!(
                f,
                "membarrier(PRIVATE_EXPEDITED_RSEQ) is refused: {}",
                std::io::Error::from_raw_os_error(*errno)
            ),
            Self::Architecture => f.write_str("no restartable sequences for this architecture"),
        }
    }
}

impl Area {
    /// The area that glibc registered, once the kernel agreed to drains from outside.
    pub fn of_glibc() -> Result<Self, Unavailable> {
        static AREA: OnceLock<Result<Area, Unavailable>> = OnceLock::new();
        *AREA.get_or_init(Self::probe)
    }

    fn probe() -> Result<Self, Unavailable> {
        if cfg!(not(any(target_arch = "x86_64", target_arch = "aarch64"))) {
            return Err(Unavailable::Architecture);
        }
        let offset = symbol(c"__rseq_offset").ok_or(Unavailable::NoLibrarySupport)?;
        let size = symbol(c"__rseq_size").ok_or(Unavailable::NoLibrarySupport)?;
        // SAFETY: glibc declares `const ptrdiff_t __rseq_offset` and `const unsigned int __rseq_size`
        // (sys/rseq.h, 2.35), constant once the program runs.
        let (offset, size) = unsafe { (*offset.cast::<isize>(), *size.cast::<u32>()) };
        if size == 0 {
            return Err(Unavailable::NotRegistered);
        }
        // Registering is idempotent and process-wide.
        membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ, 0, 0)
            .map_err(Unavailable::NoMembarrier)?;
        Ok(Self { offset, registered: true })
    }

    /// The CPU that this thread runs on.
    #[inline(always)]
    pub fn current_cpu(self) -> CpuId {
        CpuId(super::sequences::current_cpu(self.offset))
    }

    /// The distance in bytes.
    #[inline(always)]
    pub(super) fn offset(self) -> isize {
        self.offset
    }

    /// An area at a distance of the caller's: for counting instructions under valgrind, which does not
    /// know rseq, with a `struct rseq` that the kernel has not seen.
    ///
    /// # Safety
    /// * The thread pointer of every thread that uses the storage plus `offset` is a `struct rseq` of 32
    ///   bytes in memory of that thread, with the number of a CPU in `cpu_id`.
    /// * No two threads use lists of one CPU: nothing aborts a sequence.
    #[doc(hidden)]
    pub const unsafe fn unregistered(offset: isize) -> Self {
        Self { offset, registered: false }
    }

    /// Aborts the sequence that runs on `cpu`, if any: when this returns true, whatever starts there sees
    /// the stores that were made before. False if the kernel refuses what it granted at start (a
    /// sandbox that was entered later).
    pub(super) fn abort_sequences_on(self, cpu: CpuId) -> bool {
        if !self.registered {
            return true;
        }
        let result = membarrier(
            MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ,
            MEMBARRIER_CMD_FLAG_CPU,
            cpu.0 as libc::c_int,
        );
        // ENXIO: the CPU is offline, so nothing runs there.
        matches!(result, Ok(()) | Err(libc::ENXIO))
    }
}

fn symbol(name: &core::ffi::CStr) -> Option<*mut libc::c_void> {
    // SAFETY: dlsym with a terminated name; RTLD_DEFAULT searches the loaded objects.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!address.is_null()).then_some(address)
}

fn membarrier(command: libc::c_int, flags: libc::c_uint, cpu: libc::c_int) -> Result<(), i32> {
    // SAFETY: membarrier takes three integers and touches no memory of ours.
    let answer = unsafe { libc::syscall(libc::SYS_membarrier, command, flags, cpu) };
    if answer == 0 {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL))
    }
}
