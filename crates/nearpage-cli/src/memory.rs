//! A bound on the memory of a command that reads a stranger's file. Readers hold each input to its own limits; what computes on it, and
//! a reader with a fault, ends here with a message, before the machine's other programs lose theirs.

use std::alloc::{GlobalAlloc, Layout, System};
use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;

use nearpage_machine::{Budget, size};

/// The system's allocator, which ends the program with a message where the bound is reached.
#[derive(Debug)]
pub struct Bounded;

/// What is said then.
static MESSAGE: OnceLock<String> = OnceLock::new();

/// What a command takes whatever it reads.
const FREE_BYTES: u64 = 1 << 30;
/// The same of simulations and models, whose memory follows the machine.
const MODEL_BYTES: u64 = 4 << 30;
/// How often the length of an input: the most that the table of limits has (*What is trusted*, in the book).
const RATIO: u64 = 112;

/// Holds this process to a bound by its inputs. Nobody is held who raised the limits.
pub(crate) fn bound(inputs: &[PathBuf], is_model: bool) {
    let bytes = inputs.iter().map(|input| match fs::metadata(input) {
        Ok(found) if found.is_file() => found.len(),
        // A folder, a pipe, standard input, or a text of the command line.
        _ => Budget::DEFAULT.file_bytes,
    });
    let bytes = bytes.fold(0_u64, u64::saturating_add).saturating_mul(RATIO);
    let most = bytes.saturating_add(if is_model { MODEL_BYTES } else { FREE_BYTES });
    let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
    // SAFETY: the limit is there; it holds for this process alone.
    if unsafe { libc::setrlimit(libc::RLIMIT_DATA, &raw const limit) } == 0 {
        let message = format!(
            "nearpage: this takes more than {} of memory, the most for these inputs; --limit SIZE raises it\n",
            size::format(most)
        );
        let _ = MESSAGE.set(message);
    }
}

/// Ends the program if it is held to a bound. Nothing may be allocated here.
fn check(pointer: *mut u8) -> *mut u8 {
    if let Some(message) = MESSAGE.get().filter(|_| pointer.is_null()) {
        // SAFETY: the bytes are there, and the process ends without what runs at the end of one.
        unsafe {
            libc::write(libc::STDERR_FILENO, message.as_ptr().cast(), message.len());
            libc::_exit(2);
        }
    }
    pointer
}

// SAFETY: all is done by the system's allocator.
unsafe impl GlobalAlloc for Bounded {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: what the caller promises.
        check(unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: what the caller promises.
        check(unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: what the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: what the caller promises.
        check(unsafe { System.realloc(pointer, layout, bytes) })
    }
}
