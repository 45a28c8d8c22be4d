//! The serial port through which files leave the machine.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};

use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};

/// The port, opened so that bytes pass as they are.
pub struct Port(File);

impl Port {
    /// Opens a device.
    pub fn open(path: &str) -> io::Result<Port> {
        let file = OpenOptions::new().write(true).open(path)?;
        let mut settings = tcgetattr(&file)?;
        settings.make_raw();
        tcsetattr(&file, OptionalActions::Now, &settings)?;
        Ok(Port(file))
    }

    /// Sends a file under a name.
    pub fn send(&mut self, name: &str, content: &[u8]) -> io::Result<()> {
        self.0.write_all(format!("\n=== {name} {}\n", content.len()).as_bytes())?;
        self.0.write_all(content)
    }

    /// Waits until all has been sent.
    pub fn drain(&self) -> io::Result<()> {
        Ok(rustix::termios::tcdrain(&self.0)?)
    }
}
