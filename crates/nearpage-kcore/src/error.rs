//! Why the memory of a kernel cannot be read.

use std::io;
use std::path::PathBuf;

/// An image of memory that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KcoreError {
    /// The file cannot be opened or read.
    #[error("{path}: cannot be read: {source}{hint}", path = path.display(), hint = hint(source))]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The file is no image of memory that is read here.
    #[error(
        "{path}: {what}; expected an ELF core of x86-64: /proc/kcore, or what `virsh dump --memory-only`, QEMU's \
         dump-guest-memory or kdump (`makedumpfile -E`) write",
        path = path.display()
    )]
    NoCore {
        /// The file.
        path: PathBuf,
        /// What was found.
        what: String,
    },
    /// The memory lacks something that is needed.
    #[error("{path}: {what}; expected {expected}", path = path.display())]
    Lacks {
        /// The file.
        path: PathBuf,
        /// What is missing, or is not as it should be.
        what: String,
        /// What would be read.
        expected: &'static str,
    },
    /// A place that the file does not have.
    #[error("{path}: {what} at {address:#x}: {why}", path = path.display())]
    Hole {
        /// The file.
        path: PathBuf,
        /// What was to be read.
        what: String,
        /// Where: an address of the kernel.
        address: u64,
        /// Why it cannot be read.
        why: &'static str,
    },
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            " (/proc/kcore needs root with CAP_SYS_RAWIO, and a kernel that is not locked down)"
        }
        io::ErrorKind::NotFound => " (/proc/kcore needs CONFIG_PROC_KCORE)",
        _ => "",
    }
}
