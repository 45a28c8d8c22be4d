//! Where glibc registered `struct rseq`, and what the kernel must offer for drains from outside.

use std::sync::OnceLock;

use nearpage::CpuId;
use rustix::io::Errno;
use rustix::thread::{MembarrierCommand, membarrier};

use crate::ffi;

/// The distance of every thread's `struct rseq` from its thread pointer.
#[derive(Clone, Copy, Debug)]
pub struct Area {
    offset: isize,
    /// Whether the kernel knows it.
    registered: bool,
}

/// Why restartable sequences cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RseqUnavailable {
    /// The C library has no `__rseq_offset`: glibc before 2.35, or another library.
    #[error("the C library does not register rseq (glibc 2.35 does)")]
    NoLibrarySupport,
    /// The C library did not register this thread: a kernel before 4.18, a sandbox or valgrind without
    /// rseq, or the tunable `glibc.pthread.rseq=0`.
    #[error("rseq is not registered for this thread")]
    NotRegistered,
    /// `membarrier(PRIVATE_EXPEDITED_RSEQ)` is refused, with this errno: no drain from outside.
    #[error(
        "membarrier(PRIVATE_EXPEDITED_RSEQ) is refused: {}",
        std::io::Error::from_raw_os_error(*.0)
    )]
    NoMembarrier(i32),
    /// There are no sequences for this architecture.
    #[error("no restartable sequences for this architecture")]
    Architecture,
}

impl Area {
    /// The area that glibc registered, once the kernel agreed to drains from outside.
    pub fn of_glibc() -> Result<Self, RseqUnavailable> {
        static AREA: OnceLock<Result<Area, RseqUnavailable>> = OnceLock::new();
        *AREA.get_or_init(Self::probe)
    }

    fn probe() -> Result<Self, RseqUnavailable> {
        if cfg!(not(any(target_arch = "x86_64", target_arch = "aarch64"))) {
            return Err(RseqUnavailable::Architecture);
        }
        let (offset, size) = ffi::rseq_of_library().ok_or(RseqUnavailable::NoLibrarySupport)?;
        if size == 0 {
            return Err(RseqUnavailable::NotRegistered);
        }
        // Registering is idempotent and process-wide.
        membarrier(MembarrierCommand::RegisterPrivateExpeditedRseq)
            .map_err(|refusal| RseqUnavailable::NoMembarrier(refusal.raw_os_error()))?;
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
        match ffi::abort_sequences_on(cpu) {
            Ok(()) => true,
            // The CPU is offline, so nothing runs there.
            Err(error) => Errno::from_io_error(&error) == Some(Errno::NXIO),
        }
    }
}
