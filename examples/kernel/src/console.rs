//! The serial line: one line at a time, from any CPU, interrupt handlers too.

use core::fmt::{self, Write as _};

use nearpage_kernel::TicketLock;

use crate::arch;
use crate::mine::Mine;

/// The line.
pub struct Serial;

impl fmt::Write for Serial {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.bytes().for_each(arch::put);
        Ok(())
    }
}

static SERIAL: TicketLock<Mine, Serial> = TicketLock::new(Serial);

/// Writes a line.
pub fn line(text: fmt::Arguments<'_>) {
    let mut serial = SERIAL.lock();
    let _ = serial.write_fmt(text).and_then(|()| serial.write_str("\n"));
}

/// Calls `write` with the serial line, which nobody else uses meanwhile.
pub fn with(write: impl FnOnce(&mut Serial) -> fmt::Result) {
    let _ = write(&mut SERIAL.lock());
}

/// Writes a line of the last words, without waiting for anybody.
pub fn last_words(text: fmt::Arguments<'_>) {
    let _ = Serial.write_fmt(text).and_then(|()| Serial.write_str("\n"));
}

/// Writes a line to the serial line.
#[macro_export]
macro_rules! log {
    ($($text:tt)*) => { $crate::console::line(format_args!($($text)*)) };
}
