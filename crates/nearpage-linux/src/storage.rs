//! Which pageset storage this process can use, and why.
//!
//! Restartable sequences need the kernel's rseq, registered by glibc for every thread (2.35 and later).
//! glibc exports where its registration lies; the symbols are looked up at run time, so that a
//! program starts on older ones too.

use std::ffi::CStr;
use std::fmt;

/// The kind of storage of the per-CPU pagesets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Storage {
    /// Restartable sequences: no atomic instruction on the fast path.
    Rseq {
        /// Bytes of the registered area.
        area_bytes: u32,
    },
    /// A lock per CPU.
    Locked(WhyLocked),
}

/// Why restartable sequences are not used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WhyLocked {
    /// `NEARPAGE_RSEQ=off`.
    TurnedOff,
    /// The C library does not export its registration: not glibc, or older than 2.35.
    NotExported,
    /// The C library did not register: old kernel, sandbox, or `GLIBC_TUNABLES=glibc.pthread.rseq=0`.
    NotRegistered,
    /// No restartable sequences are written for this processor.
    Processor,
}

impl Storage {
    /// What this process can use.
    pub fn detect() -> Storage {
        if std::env::var_os("NEARPAGE_RSEQ").is_some_and(|value| value == "off") {
            return Storage::Locked(WhyLocked::TurnedOff);
        }
        if cfg!(not(any(target_arch = "x86_64", target_arch = "aarch64"))) {
            return Storage::Locked(WhyLocked::Processor);
        }
        match registered_area_bytes() {
            None => Storage::Locked(WhyLocked::NotExported),
            Some(0) => Storage::Locked(WhyLocked::NotRegistered),
            Some(area_bytes) => Storage::Rseq { area_bytes },
        }
    }
}

/// The size of glibc's registration: 0 if the kernel refused, `None` if glibc has no such symbol.
fn registered_area_bytes() -> Option<u32> {
    const SYMBOL: &CStr = c"__rseq_size";
    // SAFETY: the name is a C string; RTLD_DEFAULT is a valid handle in every process.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, SYMBOL.as_ptr()) };
    // SAFETY: a symbol of this name is glibc's `const unsigned int`, written before `main` and never after.
    (!address.is_null()).then(|| unsafe { address.cast::<u32>().read() })
}

impl fmt::Display for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Storage::Rseq { area_bytes } => {
                write!(f, "rseq (registered by glibc, {area_bytes} bytes)")
            }
            Storage::Locked(why) => write!(f, "locked ({why})"),
        }
    }
}

impl fmt::Display for WhyLocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WhyLocked::TurnedOff => "NEARPAGE_RSEQ=off",
            WhyLocked::NotExported => "no __rseq_size: the C library is not glibc 2.35 or later",
            WhyLocked::NotRegistered => {
                "glibc registered no rseq: old kernel, sandbox, or glibc.pthread.rseq=0"
            }
            WhyLocked::Processor => "no restartable sequences for this processor",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn detection_says_why() {
        // Whatever this machine has, the answer names a storage and a reason in brackets.
        let line = Storage::detect().to_string();
        assert!(line.starts_with("rseq (") || line.starts_with("locked ("), "{line}");
    }

    #[test]
    fn every_reason_reads_well() {
        assert_eq!(Storage::Locked(WhyLocked::TurnedOff).to_string(), "locked (NEARPAGE_RSEQ=off)");
        assert_eq!(
            Storage::Rseq { area_bytes: 32 }.to_string(),
            "rseq (registered by glibc, 32 bytes)"
        );
    }
}
