//! What a file says of the machine: its order of bytes, the formats of events, the names of tasks.

use std::collections::HashMap;
use std::io;

use super::format::Format;
use super::source::{Addresses, Cursor, Order, damaged};
use super::symbols::Symbols;

/// Formats of a file: a kernel has some thousands.
const FORMATS_MAX: u64 = 1 << 16;

/// Formats by the id that a record begins with.
pub(super) struct Formats {
    by_id: HashMap<u16, Format>,
    pub order: Order,
    pub long_bytes: u64,
    /// Where the kernel has what records tell of.
    pub addresses: Addresses,
    /// Names of the kernel's functions, for call chains.
    pub symbols: Symbols,
}

impl Formats {
    pub fn new(order: Order, long_bytes: u64) -> Formats {
        let (addresses, symbols) = (Addresses::default(), Symbols::default());
        Formats { by_id: HashMap::new(), order, long_bytes, addresses, symbols }
    }

    /// The format of a record, by its first two bytes.
    pub fn of(&self, record: &[u8]) -> Option<&Format> {
        let id = self.order.number(record.get(..2)?)?;
        self.by_id.get(&(id as u16))
    }

    /// The name of the event with this number.
    pub fn name(&self, id: u64) -> Option<&str> {
        self.by_id.get(&u16::try_from(id).ok()?).map(|format| &*format.name)
    }

    pub fn add(&mut self, text: &[u8]) {
        if let Some(format) = Format::parse(&String::from_utf8_lossy(text)) {
            self.by_id.insert(format.id, format);
        }
    }

    /// A number of formats, each with its length: those of ftrace itself.
    pub fn read_ftrace(&mut self, cursor: &mut Cursor<'_>) -> io::Result<()> {
        let count = cursor.number(4)?;
        self.read_some(cursor, count)
    }

    /// Formats by groups.
    pub fn read_events(&mut self, cursor: &mut Cursor<'_>) -> io::Result<()> {
        for _ in 0..cursor.number(4)? {
            cursor.text()?;
            let count = cursor.number(4)?;
            self.read_some(cursor, count)?;
        }
        Ok(())
    }

    fn read_some(&mut self, cursor: &mut Cursor<'_>, count: u64) -> io::Result<()> {
        if count > FORMATS_MAX {
            return Err(damaged(cursor.offset(), format!("{count} formats of events")));
        }
        for _ in 0..count {
            let bytes = cursor.number(8)?;
            self.add(cursor.take(bytes)?);
        }
        Ok(())
    }
}

/// Passes over the description of a ring buffer's pages and of its records' heads, which has been the same since 2.6.32.
pub(super) fn skip_headers(cursor: &mut Cursor<'_>) -> io::Result<()> {
    for name in [b"header_page\0".as_slice(), b"header_event\0"] {
        cursor.expect(name)?;
        let bytes = cursor.number(8)?;
        cursor.take(bytes)?;
    }
    Ok(())
}

/// The first bytes behind the magic of `trace.dat` and of the tracing data in `perf.data`: version, order, sizes. Returns the
/// version, the formats to fill, and the size of a page.
pub(super) fn read_start(
    cursor_bytes: &[u8],
    offset: u64,
) -> io::Result<(u64, Formats, u64, usize)> {
    let mut cursor = Cursor::new(cursor_bytes, offset, Order::Little);
    let text = String::from_utf8_lossy(cursor.text()?).into_owned();
    // perf says 0.5 or 0.6.
    let version = text.trim_start_matches("0.").parse();
    let version = version.map_err(|_| damaged(offset, format!("found the version {text:?}")))?;
    let order = match cursor.number(1)? {
        0 => Order::Little,
        1 => Order::Big,
        other => {
            return Err(damaged(cursor.offset(), format!("found {other} for the order of bytes")));
        }
    };
    let long_bytes = cursor.number(1)?;
    if !matches!(long_bytes, 4 | 8) {
        return Err(damaged(cursor.offset(), format!("found {long_bytes} for the size of a long")));
    }
    let page = order.number(cursor.take(4)?).unwrap_or_default();
    let used = (cursor.offset() - offset) as usize;
    Ok((version, Formats::new(order, long_bytes), page, used))
}

/// What the name of a task takes in a map that grows.
pub(super) const TASK_COSTS: u64 = 80;

/// Names of tasks, by their numbers: lines of `saved_cmdlines`.
#[derive(Default)]
pub(super) struct Tasks(HashMap<u32, [u8; TASK_NAME_BYTES]>);

/// The kernel's `TASK_COMM_LEN`: a name, and zeroes behind it.
const TASK_NAME_BYTES: usize = 16;

impl Tasks {
    pub fn read(&mut self, text: &[u8]) {
        for line in text.split(|byte| *byte == b'\n') {
            let Some(space) = memchr::memchr(b' ', line) else { continue };
            let pid = std::str::from_utf8(&line[..space]).ok().and_then(|pid| pid.parse().ok());
            if let Some(pid) = pid {
                self.set(pid, &line[space + 1..]);
            }
        }
    }

    /// Gives a task a name; whether it had none.
    pub fn set(&mut self, pid: u32, comm: &[u8]) -> bool {
        let mut name = [0; TASK_NAME_BYTES];
        name.iter_mut().zip(comm).take(TASK_NAME_BYTES - 1).for_each(|(to, from)| *to = *from);
        self.0.insert(pid, name).is_none()
    }

    /// A new task has the name of another one, if that has one; whether it is kept beside.
    pub fn inherit(&mut self, pid: u32, from: u32) -> bool {
        let name = self.0.get(&from).copied();
        name.is_some_and(|name| self.0.insert(pid, name).is_none())
    }

    /// Its name, as ftrace prints it.
    pub fn name(&self, pid: u32) -> &[u8] {
        match self.0.get(&pid) {
            Some(name) if name[0] != 0 => {
                &name[..memchr::memchr(0, name).unwrap_or(TASK_NAME_BYTES)]
            }
            _ if pid == 0 => b"<idle>",
            _ => b"<...>",
        }
    }
}
