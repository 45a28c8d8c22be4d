//! A bound on the memory of a command that reads a stranger's file. Readers hold each input to its own limits; what computes on it, and
//! a reader with a fault, ends here with a message, before the machine's other programs lose their memory.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use nearpage_machine::{Budget, size};
use rustix::param::page_size;

use crate::terminal;

/// What a command takes whatever it reads.
const FREE_BYTES: u64 = 1 << 30;
/// The same of simulations and models, whose memory follows the machine.
const MODEL_BYTES: u64 = 4 << 30;
/// How often the length of an input: the most that the table of limits has (*What is trusted*, in the book).
const RATIO: u64 = 112;
/// Between two looks.
const PERIOD: Duration = Duration::from_millis(50);

/// Ends this process, with a message, where it has more memory than its inputs may cost. Nobody is held who raised the limits.
pub(crate) fn bound(inputs: &[PathBuf], is_model: bool) {
    let bytes = inputs.iter().map(|input| match fs::metadata(input) {
        Ok(found) if found.is_file() => found.len(),
        // Its files are held to a length each.
        Ok(found) if found.is_dir() => 0,
        // A pipe, whose length nobody knows.
        Ok(_) => Budget::DEFAULT.file_bytes,
        Err(_) if input.as_os_str() == "-" => Budget::DEFAULT.file_bytes,
        // A text of the command line.
        Err(_) => 0,
    });
    let bytes = bytes.fold(0_u64, u64::saturating_add).saturating_mul(RATIO);
    let most = bytes.saturating_add(if is_model { MODEL_BYTES } else { FREE_BYTES });
    let Ok(statm) = File::open("/proc/self/statm") else { return };
    let look = move || {
        while resident(&statm).is_none_or(|bytes| bytes <= most) {
            thread::sleep(PERIOD);
        }
        terminal::error(format_args!(
            "this takes more than {} of memory, the most for these inputs; --limit SIZE raises it",
            size::format(most)
        ));
        std::process::exit(2);
    };
    // Without a thread there is no bound, as without /proc.
    let _ = thread::Builder::new().name("memory".into()).spawn(look);
}

/// Bytes that are resident, by the second number of `statm`. `Documentation/filesystems/proc.rst`.
fn resident(statm: &File) -> Option<u64> {
    let mut text = [0; 128];
    let length = statm.read_at(&mut text, 0).ok()?;
    let pages = std::str::from_utf8(&text[..length]).ok()?.split(' ').nth(1)?;
    pages.parse::<u64>().ok()?.checked_mul(page_size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_resident_is_seen() {
        let statm = File::open("/proc/self/statm").unwrap();
        let before = resident(&statm).unwrap();
        let held = std::hint::black_box(vec![1_u8; 64 << 20]);
        assert!(resident(&statm).unwrap() >= before + held.len() as u64 / 2);
    }
}
