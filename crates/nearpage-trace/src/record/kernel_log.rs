//! The kernel's log, as `dmesg` prints it.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;

/// The longest record that the kernel gives.
const RECORD_BYTES_MAX: usize = 8192;

/// A place in the kernel's log.
pub(super) struct KernelLog {
    /// `None` if it may not be read, as in a container: the log is then empty.
    file: Option<File>,
}

impl KernelLog {
    /// Begins with the oldest record that the kernel still has.
    pub(super) fn open() -> KernelLog {
        let mut options = OpenOptions::new();
        KernelLog { file: options.read(true).custom_flags(libc::O_NONBLOCK).open("/dev/kmsg").ok() }
    }

    /// What was logged since the last call.
    pub(super) fn read_new(&mut self) -> String {
        let mut text = String::new();
        let mut record = [0; RECORD_BYTES_MAX];
        let Some(file) = &mut self.file else { return text };
        loop {
            match file.read(&mut record) {
                Ok(0) => return text,
                Ok(length) => push_record(&mut text, &String::from_utf8_lossy(&record[..length])),
                // Records were overwritten: the next call gives the oldest that is left.
                Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return text,
            }
        }
    }
}

/// Makes `[    5.140900] text` of `6,339,5140900,-;text` and what is known of the device in further lines.
fn push_record(text: &mut String, record: &str) {
    let first = record.lines().next().unwrap_or_default();
    let Some((prefix, message)) = first.split_once(';') else { return };
    let time = prefix.split(',').nth(2).and_then(|time| time.parse::<u64>().ok()).unwrap_or(0);
    let (seconds, microseconds) = (time / 1_000_000, time % 1_000_000);
    // The kernel escapes ends of lines.
    for line in message.split("\\x0a") {
        text.push_str(&format!("[{seconds:5}.{microseconds:06}] {line}\n"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_become_lines() {
        let mut text = String::new();
        push_record(&mut text, "6,339,5140900,-;Freeing initrd memory: 1200K\n SUBSYSTEM=x\n");
        push_record(&mut text, "6,340,12345678901,c;a\\x0ab;c\n");
        push_record(&mut text, "damage");
        let expected =
            "[    5.140900] Freeing initrd memory: 1200K\n[12345.678901] a\n[12345.678901] b;c\n";
        assert_eq!(text, expected);
    }
}
