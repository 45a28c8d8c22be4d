//! Runs a machine until it switches itself off.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::{Architecture, RecordError, qemu};
use crate::tied;

/// Runs the machine, and returns what it sent. Ten times a second `each` may look at what it sent so far.
///
/// # Errors
///
/// It does not finish, or there is no emulator.
pub fn boot(
    architecture: Architecture,
    arguments: Vec<String>,
    files: &qemu::Files,
    timeout: Duration,
    mut each: impl FnMut() -> Result<(), RecordError>,
) -> Result<Vec<u8>, RecordError> {
    let mut command = Command::new(architecture.emulator());
    command.args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    tied::tie(&mut command);
    let mut machine = command.spawn().map_err(|_| RecordError::Missing {
        what: architecture.emulator().into(),
        places: "the PATH".into(),
        remedy: format!("it comes with Debian's {}", architecture.emulator_package()),
    })?;
    let begin = Instant::now();
    let reason = loop {
        match machine.try_wait() {
            Ok(Some(status)) if status.success() => {
                return fs::read(&files.output).map_err(RecordError::file(&files.output));
            }
            Ok(Some(status)) => break status.to_string(),
            Ok(None) if begin.elapsed() < timeout => match each() {
                Ok(()) => std::thread::sleep(Duration::from_millis(100)),
                Err(error) => {
                    let _ = machine.kill();
                    let _ = machine.wait();
                    return Err(error);
                }
            },
            _ => {
                let _ = machine.kill();
                let _ = machine.wait();
                break format!("it ran for {} s", timeout.as_secs());
            }
        }
    };
    Err(RecordError::Unfinished { reason, console: console(files) })
}

/// The last lines that the machine printed.
pub fn console(files: &qemu::Files) -> String {
    let text = fs::read(&files.console).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).replace('\r', "");
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(15)..].join("\n")
}
