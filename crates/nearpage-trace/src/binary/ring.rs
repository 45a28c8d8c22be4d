//! A page of a CPU's ring buffer: a time, how much is used, and records behind each other.
//!
//! ```text
//! u64 time of the first record | long bytes used, with two flags | records
//! record: u32 (5 bits kind, 27 bits time since the one before) | data
//! kinds: 0 data with a length before it, 1-28 data of as many words, 29 nothing, 30 more time, 31 the whole time
//! ```

use std::io;

use super::source::{Order, damaged};

/// Set in the bytes used: records were lost before this page.
const MISSED: u64 = 1 << 31;
/// And how many is told behind the last record.
const MISSED_STORED: u64 = 1 << 30;
const USED: u64 = (1 << 27) - 1;
/// Bits of the time in a record's head.
const TIME_BITS: u32 = 27;
/// A whole time has the upper bits of the one before.
const TIME_TOP: u64 = 0xf8 << 56;

/// A page, as it lies in the file.
pub(super) struct Page {
    bytes: Vec<u8>,
    /// Where it begins in the file, for messages.
    offset: u64,
    order: Order,
    at: usize,
    end: usize,
    time: u64,
    /// Records lost before it; 0 if it is not told how many.
    pub missed: Option<u64>,
}

impl Page {
    pub fn new(bytes: Vec<u8>, offset: u64, order: Order, long_bytes: u64) -> io::Result<Page> {
        let begin = 8 + long_bytes as usize;
        let field =
            |from: usize, to: usize| bytes.get(from..to).and_then(|part| order.number(part));
        let (time, commit) = field(0, 8)
            .zip(field(8, begin))
            .ok_or_else(|| damaged(offset, "a page that is shorter than its head"))?;
        let used = (commit & USED) as usize;
        let end = begin + used;
        if end > bytes.len() {
            let found = format!("a page of {} bytes that says that {used} are used", bytes.len());
            return Err(damaged(offset, found));
        }
        let stored = || field(end, end + long_bytes as usize).unwrap_or(0);
        let missed =
            (commit & MISSED != 0).then(|| if commit & MISSED_STORED != 0 { stored() } else { 0 });
        Ok(Page { bytes, offset, order, at: begin, end, time, missed })
    }

    /// The next record's time and data.
    pub fn next(&mut self) -> io::Result<Option<(u64, &[u8])>> {
        while self.at + 4 <= self.end {
            let head = self.word(self.at)?;
            let (kind, delta) = match self.order {
                Order::Little => (head & 31, head >> 5),
                Order::Big => (head >> TIME_BITS, head & ((1 << TIME_BITS) - 1)),
            };
            let data = self.at + 4;
            match kind {
                29 if delta == 0 => return Ok(None),
                29 => self.at = data.saturating_add(self.word(data)? as usize).min(self.end),
                30 => {
                    self.time = self.time.wrapping_add((self.word(data)? << TIME_BITS) + delta);
                    self.at = data + 4;
                }
                31 => {
                    self.time = ((self.word(data)? << TIME_BITS) + delta) | (self.time & TIME_TOP);
                    self.at = data + 4;
                }
                _ => {
                    self.time = self.time.wrapping_add(delta);
                    let (begin, length) = match kind {
                        // The length counts its own word.
                        0 => (data + 4, (self.word(data)? as usize).saturating_sub(4)),
                        words => (data, 4 * words as usize),
                    };
                    if begin > self.end || length > self.end - begin {
                        let found =
                            format!("a record of {length} bytes beyond the end of its page");
                        return Err(damaged(self.offset + self.at as u64, found));
                    }
                    self.at = begin + length.next_multiple_of(4);
                    return Ok(Some((self.time, &self.bytes[begin..begin + length])));
                }
            }
        }
        Ok(None)
    }

    fn word(&self, at: usize) -> io::Result<u64> {
        let word = self.bytes.get(at..at + 4).and_then(|word| self.order.number(word));
        word.ok_or_else(|| damaged(self.offset + at as u64, "a record that is cut off"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records of all kinds, in either order of bytes.
    #[test]
    fn all_kinds_of_records() {
        for order in [Order::Little, Order::Big] {
            let word = |value: u32| match order {
                Order::Little => value.to_le_bytes(),
                Order::Big => value.to_be_bytes(),
            };
            let long = |value: u64| match order {
                Order::Little => value.to_le_bytes(),
                Order::Big => value.to_be_bytes(),
            };
            let head = |kind: u32, delta: u32| match order {
                Order::Little => word(kind | delta << 5),
                Order::Big => word(kind << 27 | delta),
            };
            let mut records = Vec::new();
            records.extend([head(2, 5), word(0x11), word(0x12)]);
            records.extend([head(30, 1), word(2)]);
            records.extend([head(0, 0), word(4 + 6), word(0x21), word(0x22)]);
            records.extend([head(29, 1), word(8), word(0)]);
            records.extend([head(31, 7), word(1)]);
            records.extend([head(1, 1), word(0x31)]);
            let records = records.concat();
            let commit = records.len() as u64 | MISSED | MISSED_STORED;
            let mut bytes = [&long(1000)[..], &long(commit), &records, &long(42)].concat();
            bytes.resize(4096, 0);
            let mut page = Page::new(bytes, 0, order, 8).unwrap();
            assert_eq!(page.missed, Some(42));
            let mut found = Vec::new();
            while let Some((time, data)) = page.next().unwrap() {
                found.push((time, data.len(), order.number(&data[..4]).unwrap()));
            }
            let later = 1005 + (2 << 27) + 1;
            assert_eq!(found, [(1005, 8, 0x11), (later, 6, 0x21), ((1 << 27) + 7 + 1, 4, 0x31)]);
        }
    }

    #[test]
    fn damage_is_told() {
        let page = |commit: u64, records: &[u32]| {
            let records: Vec<u8> = records.iter().flat_map(|word| word.to_le_bytes()).collect();
            let mut bytes = [&1_u64.to_le_bytes()[..], &commit.to_le_bytes(), &records].concat();
            bytes.resize(64, 0);
            Page::new(bytes, 8192, Order::Little, 8)
        };
        assert!(page(64, &[]).is_err());
        let error = page(8, &[3, 0]).unwrap().next().unwrap_err().to_string();
        assert_eq!(error, "byte 8208 of the file: a record of 12 bytes beyond the end of its page");
        assert!(page(8, &[0, 4_000_000_000]).unwrap().next().is_err());
        assert!(page(4, &[29 | 1 << 5]).unwrap().next().unwrap().is_none());
        // Lengths that end beyond the addresses of 32 bits.
        assert!(page(8, &[0, u32::MAX]).unwrap().next().is_err());
        assert!(page(8, &[29 | 1 << 5, u32::MAX]).unwrap().next().unwrap().is_none());
        assert!(Page::new(vec![0; 12], 0, Order::Little, 8).is_err());
    }
}
