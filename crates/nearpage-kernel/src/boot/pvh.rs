//! What a loader of the PVH protocol leaves (`qemu-system-x86_64 -kernel`, Xen): the memory map, the command line, modules, and
//! where ACPI's tables are. Source: `docs/misc/pvh.pandoc` and `xen/include/public/arch-x86/hvm/start_info.h` of Xen.

use core::fmt;

use super::early::{EarlyError, EarlyMemory};
use crate::firmware::Physical;
use crate::firmware::bytes::{le32, le64};

const MAGIC: u32 = 0x336e_c578;
/// Entries of the memory map, and modules, at most: what is above is not read.
const ENTRIES_MAX: u32 = 10_000;
/// The longest command line.
const COMMAND_LINE_MAX: usize = 4096;
/// E820's number of memory that may be used.
const USABLE: u32 = 1;

/// Where what the loader left is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Told {
    /// The address of ACPI's root pointer, or 0.
    pub rsdp: u64,
    command_line: u64,
}

/// Why a start info cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PvhError {
    /// There is none at its address.
    NoStartInfo {
        /// The address.
        address: u64,
    },
    /// It has no memory map: it is of version 0.
    NoMemoryMap,
    /// Its memory map has more entries than are read.
    TooManyEntries {
        /// How many it has.
        entries: u32,
    },
    /// Its memory cannot be used.
    Memory(EarlyError),
}

impl fmt::Display for PvhError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoStartInfo { address } => {
                write!(f, "there is no PVH start info at {address:#x}")
            }
            Self::NoMemoryMap => f.write_str("the PVH start info has no memory map; version 1 has"),
            Self::TooManyEntries { entries } => write!(
                f,
                "the PVH memory map has {entries} entries; at most {ENTRIES_MAX} are accepted"
            ),
            Self::Memory(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for PvhError {}

impl From<EarlyError> for PvhError {
    fn from(error: EarlyError) -> Self {
        Self::Memory(error)
    }
}

/// Adds the memory that the loader reports, and reserves what it left there (the start info, the map, the modules with their
/// list, the command line) and the first MiB.
///
/// # Errors
/// [`PvhError`].
pub fn read<const RANGES: usize>(
    from: &(impl Physical + ?Sized),
    start_info: u64,
    memory: &mut EarlyMemory<RANGES>,
) -> Result<Told, PvhError> {
    let missing = PvhError::NoStartInfo { address: start_info };
    let info = from.bytes(start_info, 56).ok_or(missing)?;
    let word = |at| le64(info, at).ok_or(missing);
    let half = |at| le32(info, at).ok_or(missing);
    if half(0)? != MAGIC {
        return Err(missing);
    }
    if half(4)? == 0 {
        return Err(PvhError::NoMemoryMap);
    }
    let entries = half(48)?;
    if entries > ENTRIES_MAX {
        return Err(PvhError::TooManyEntries { entries });
    }
    let map = from.bytes(word(40)?, entries as usize * 24).ok_or(PvhError::NoMemoryMap)?;
    let entry = |entry| Some((le64(entry, 0)?, le64(entry, 8)?, le32(entry, 16)? == USABLE));
    memory.add_map(map.chunks_exact(24).filter_map(entry));
    memory.leave_first_mib()?;
    memory.reserve(start_info, 56)?;
    memory.reserve(word(40)?, map.len() as u64)?;
    let modules = half(12)?.min(ENTRIES_MAX);
    if modules > 0
        && let Some(list) = from.bytes(word(16)?, modules as usize * 32)
    {
        memory.reserve(word(16)?, list.len() as u64)?;
        for module in list.chunks_exact(32) {
            if let (Some(start), Some(length)) = (le64(module, 0), le64(module, 8)) {
                memory.reserve(start, length)?;
            }
        }
    }
    let told = Told { rsdp: word(32)?, command_line: word(24)? };
    let line = told.command_line(from);
    if !line.is_empty() {
        memory.reserve(told.command_line, line.len() as u64 + 1)?;
    }
    Ok(told)
}

impl Told {
    /// The command line, without the byte that ends it; at most 4 KiB of it.
    pub fn command_line<'a>(&self, from: &'a (impl Physical + ?Sized)) -> &'a [u8] {
        if self.command_line == 0 {
            return &[];
        }
        let byte = |at: usize| {
            let address = self.command_line.checked_add(at as u64)?;
            from.bytes(address, 1).map(|byte| byte[0])
        };
        let length = (0..COMMAND_LINE_MAX).take_while(|&at| byte(at).is_some_and(|byte| byte != 0));
        from.bytes(self.command_line, length.count()).unwrap_or(&[])
    }
}
