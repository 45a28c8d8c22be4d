//! Physical memory while a kernel boots: ranges that are there, ranges that are taken, and pieces taken from the top.

use core::fmt;

use nearpage::{BuildError, NodeId, OnlineError, TopologyError};

use super::spans::{LeftOut, Span, Spans};
use crate::firmware::Machine;

/// Why early memory cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum EarlyError {
    /// A range wraps around.
    Range {
        /// Where it starts.
        start: u64,
        /// Its bytes.
        length: u64,
    },
    /// There are more ranges, after those that touch were merged, than there is room for.
    TooMany {
        /// How many there is room for.
        most: usize,
    },
    /// There is no memory, or all of it is taken.
    NoMemory,
    /// Nothing free is as large.
    NoRoom {
        /// Bytes that are needed in one piece.
        bytes: u64,
    },
    /// The machine is none that the allocator accepts.
    Topology(TopologyError),
    /// The allocator could not be made.
    Build(BuildError),
    /// Memory could not be handed over.
    Online(OnlineError),
}

impl fmt::Display for EarlyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Range { start, length } => {
                write!(f, "memory of {length:#x} bytes at {start:#x} wraps around")
            }
            Self::TooMany { most } => write!(f, "more than {most} ranges of memory"),
            Self::NoMemory => f.write_str("no memory is free; a boot needs some"),
            Self::NoRoom { bytes } => write!(f, "no {bytes} bytes of memory are free in one piece"),
            Self::Topology(error) => error.fmt(f),
            Self::Build(error) => error.fmt(f),
            Self::Online(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for EarlyError {}

/// Physical memory as the boot told it. At most `RANGES` ranges are there after those that touch are merged, as many are
/// taken, and as many belong to nodes: 72 bytes each, best in a `static`.
///
/// ```
/// use nearpage_kernel::boot::EarlyMemory;
///
/// let mut memory = EarlyMemory::<64>::new();
/// memory.add(0, 0x9_fc00)?;
/// memory.add(0x10_0000, 0x7f0_0000)?;
/// memory.reserve(0x10_0000, 0x8_0000)?; // the kernel
/// assert_eq!(memory.free_bytes(), 0x9_fc00 + 0x7f0_0000 - 0x8_0000);
/// let stack = memory.alloc(0x4000, 0x1000).expect("there is room");
/// assert_eq!(stack, 0x800_0000 - 0x4000);
/// # Ok::<(), nearpage_kernel::boot::EarlyError>(())
/// ```
#[derive(Clone, Debug)]
pub struct EarlyMemory<const RANGES: usize = 256> {
    pub(super) memory: Spans<RANGES>,
    pub(super) taken: Spans<RANGES>,
    /// By node: what is there, and what may be plugged in.
    pub(super) owned: Spans<RANGES>,
    pub(super) left_out: LeftOut,
}

impl<const RANGES: usize> EarlyMemory<RANGES> {
    /// No memory.
    pub const fn new() -> Self {
        let left_out = LeftOut { ranges: 0, bytes: 0 };
        Self { memory: Spans::new(), taken: Spans::new(), owned: Spans::new(), left_out }
    }

    /// Adds memory that may be used. It may overlap what is there already; bytes of a page that is not there as a whole are
    /// never handed out.
    ///
    /// # Errors
    /// [`EarlyError::Range`], [`EarlyError::TooMany`].
    pub fn add(&mut self, start: u64, length: u64) -> Result<(), EarlyError> {
        let end = start.checked_add(length).ok_or(EarlyError::Range { start, length })?;
        self.memory.add(start..end, 0).map_err(|_| EarlyError::TooMany { most: RANGES })
    }

    /// Takes a range out: the kernel itself, its tables, a file that the boot loaded. It may be no memory, be taken already,
    /// or come before the memory is added. Pages that have a byte of it are not handed out. Where there is no room for another
    /// range that is taken, what lies between the two that are nearest to each other is taken too ([`left_out`](Self::left_out)).
    ///
    /// # Errors
    /// [`EarlyError::Range`].
    pub fn reserve(&mut self, start: u64, length: u64) -> Result<(), EarlyError> {
        let end = start.checked_add(length).ok_or(EarlyError::Range { start, length })?;
        let Self { memory, taken, left_out, .. } = self;
        taken.add_closing_gaps(start..end, |gap| {
            let lost: u64 = memory.parts(gap).map(|part| part.bytes()).sum();
            if lost > 0 {
                left_out.note(lost);
            }
        });
        Ok(())
    }

    /// Takes the first MiB of a PC out: its firmware, what starts further CPUs and old devices write there, whatever a map says.
    pub(crate) fn leave_first_mib(&mut self) -> Result<(), EarlyError> {
        self.reserve(0, 1 << 20)
    }

    /// Takes out what an entry of a map says is not to be used, if other entries of the map, which are added already, say that
    /// some of it is: the stricter is right. An entry that wraps around goes up to the end of all addresses.
    fn forbid(&mut self, start: u64, length: u64) {
        let end = start.saturating_add(length);
        let is_memory = self.memory.parts(start..end).next().is_some();
        if is_memory {
            // It does not wrap around.
            let _ = self.reserve(start, end - start);
        }
    }

    /// Adds a map of firmware: start, length and whether it may be used, of each entry. Entries come in any order, and may overlap:
    /// of what they say of a byte, the stricter is right. A boot does not end for want of some of its memory: of ranges that are
    /// more than there is room for, once those that touch were merged, the smallest are left out, and an entry that wraps around is
    /// too ([`left_out`](Self::left_out)).
    ///
    /// ```
    /// use nearpage_kernel::boot::EarlyMemory;
    ///
    /// let mut memory = EarlyMemory::<2>::new();
    /// let map = [(0, 0x9_fc00, true), (0x10_0000, 0x1000, true), (0x20_0000, 0x100_0000, true)];
    /// memory.add_map(map);
    /// assert!(memory.ranges().eq([0..0x9_fc00, 0x20_0000..0x120_0000]));
    /// let told = "1 ranges of memory, 4 KiB, are not used: the map is too long or wrong";
    /// assert_eq!(memory.left_out().to_string(), told);
    /// ```
    pub fn add_map<I>(&mut self, entries: I)
    where
        I: IntoIterator<Item = (u64, u64, bool), IntoIter: Clone>,
    {
        let entries = entries.into_iter();
        for (start, length, _) in entries.clone().filter(|&(_, _, is_usable)| is_usable) {
            match start.checked_add(length) {
                Some(end) => {
                    let left_out = |span: Span| self.left_out.note(span.bytes());
                    self.memory.add_largest(start..end, 0, left_out);
                }
                None => self.left_out.note(0),
            }
        }
        for (start, length, _) in entries.filter(|&(_, _, is_usable)| !is_usable) {
            self.forbid(start, length);
        }
    }

    /// What was told and is not used.
    pub fn left_out(&self) -> LeftOut {
        self.left_out
    }

    /// Takes a piece from the highest place where it fits. It stays taken.
    ///
    /// # Errors
    /// [`EarlyError::NoRoom`].
    ///
    /// # Panics
    /// If `align` is no power of two.
    pub fn alloc(&mut self, bytes: u64, align: u64) -> Result<u64, EarlyError> {
        let everywhere = [Span { start: 0, end: u64::MAX, tag: 0 }];
        self.alloc_in(&mut everywhere.into_iter(), bytes, align)
    }

    /// The same, of a node's memory, or of any if that has no room.
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc).
    ///
    /// # Panics
    /// If `align` is no power of two.
    pub fn alloc_near(
        &mut self,
        machine: &Machine,
        node: NodeId,
        bytes: u64,
        align: u64,
    ) -> Result<u64, EarlyError> {
        let area = |(range, of, _): (core::ops::Range<u64>, NodeId, bool)| {
            (of == node).then_some(Span { start: range.start, end: range.end, tag: 0 })
        };
        match self.alloc_in(&mut machine.areas().filter_map(area), bytes, align) {
            Err(EarlyError::NoRoom { .. }) => self.alloc(bytes, align),
            answer => answer,
        }
    }

    /// Takes a piece from the highest place where it fits below `end`: of an address that a device or a boot protocol can reach.
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc).
    ///
    /// # Panics
    /// If `align` is no power of two.
    ///
    /// ```
    /// use nearpage_kernel::boot::EarlyMemory;
    ///
    /// let mut memory = EarlyMemory::<2>::new();
    /// memory.add(0x10_0000, 0x1000_0000)?;
    /// assert_eq!(memory.alloc_below(0x100_0000, 0x1000, 0x1000)?, 0xff_f000);
    /// memory.alloc_at(0x20_0000, 0x1000)?;
    /// assert!(memory.alloc_at(0x20_0fff, 1).is_err());
    /// # Ok::<(), nearpage_kernel::boot::EarlyError>(())
    /// ```
    pub fn alloc_below(&mut self, end: u64, bytes: u64, align: u64) -> Result<u64, EarlyError> {
        let below = [Span { start: 0, end, tag: 0 }];
        self.alloc_in(&mut below.into_iter(), bytes, align)
    }

    /// Takes a piece at a given place, all of which is there and not taken. It stays taken.
    ///
    /// # Errors
    /// [`EarlyError::NoRoom`], [`EarlyError::Range`].
    pub fn alloc_at(&mut self, start: u64, bytes: u64) -> Result<(), EarlyError> {
        let end = start.checked_add(bytes).ok_or(EarlyError::Range { start, length: bytes })?;
        let memory =
            self.memory.parts(start..end).flat_map(|part| self.taken.gaps(part.start..part.end));
        let free: u64 = memory.map(|gap| gap.end - gap.start).sum();
        // Free memory may lie in parts that adjoin; none of them overlap.
        if free == bytes && bytes > 0 {
            self.reserve(start, bytes)
        } else {
            Err(EarlyError::NoRoom { bytes })
        }
    }

    /// Bytes that are there and not taken.
    pub fn free_bytes(&self) -> u64 {
        let free = |span: &Span| {
            self.taken.gaps(span.start..span.end).map(|gap| gap.end - gap.start).sum::<u64>()
        };
        self.memory.as_slice().iter().map(free).sum()
    }

    /// Bytes that are there, ascending.
    pub fn ranges(&self) -> impl Iterator<Item = core::ops::Range<u64>> + '_ {
        self.memory.as_slice().iter().map(|span| span.start..span.end)
    }

    pub(super) fn alloc_in(
        &mut self,
        areas: &mut dyn Iterator<Item = Span>,
        bytes: u64,
        align: u64,
    ) -> Result<u64, EarlyError> {
        assert!(align.is_power_of_two(), "an alignment is a power of two");
        let mut found = None;
        for area in areas {
            for part in self.memory.parts(area.start..area.end) {
                for gap in self.taken.gaps(part.start..part.end) {
                    // As high as it fits; never at 0, which no pointer may be.
                    let start = gap.end.checked_sub(bytes).map(|start| start & !(align - 1));
                    let fits = start.filter(|&start| start >= gap.start && start > 0);
                    found = found.max(fits);
                }
            }
        }
        let start = found.ok_or(EarlyError::NoRoom { bytes })?;
        self.reserve(start, bytes)?;
        Ok(start)
    }
}

impl<const RANGES: usize> Default for EarlyMemory<RANGES> {
    fn default() -> Self {
        Self::new()
    }
}
