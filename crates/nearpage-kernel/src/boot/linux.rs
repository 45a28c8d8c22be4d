//! What a loader of the Linux boot protocol leaves on x86 (GRUB's `linux`, EFI stubs, `firecracker`): the memory map, the
//! command line, the initial disk, and where ACPI's tables are. Source: *The Linux/x86 Boot Protocol* and *Zero Page* in the
//! kernel's documentation.

use core::fmt;

use super::early::{EarlyError, EarlyMemory};
use crate::firmware::Physical;
use crate::firmware::bytes::{le16, le32, le64};

/// Bytes of the zero page.
const ZERO_PAGE: usize = 4096;
/// Entries of the map in the zero page, at most.
const ENTRIES_MAX: u8 = 128;
const USABLE: u32 = 1;
const MAGIC: &[u8] = b"HdrS";
/// Pieces of additional data that are followed, at most, and the kind of those that continue the map.
const SETUP_DATA_MAX: usize = 256;
const MORE_OF_THE_MAP: u32 = 1;
/// From this version on the address of ACPI's root pointer is in the zero page, and a command line may have any length.
const VERSION_MIN: u16 = 0x0206;

/// Where what the loader left is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Told {
    /// The address of ACPI's root pointer, or 0: then it is looked for where a BIOS leaves it.
    pub rsdp: u64,
    /// Where the command line is, and its bytes without the one that ends it.
    pub command_line: (u64, u64),
}

/// Why a zero page cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LinuxBootError {
    /// There is none at its address.
    NoZeroPage {
        /// The address.
        address: u64,
    },
    /// The protocol is older than what is read.
    Version {
        /// What the zero page says.
        version: u16,
    },
    /// Its memory map has more entries than there is room for.
    TooManyEntries {
        /// How many it has.
        entries: u8,
    },
    /// Its memory cannot be used.
    Memory(EarlyError),
}

impl fmt::Display for LinuxBootError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoZeroPage { address } => {
                write!(f, "there is no zero page of the Linux boot protocol at {address:#x}")
            }
            Self::Version { version } => write!(
                f,
                "the Linux boot protocol is of version {version:#x}; {VERSION_MIN:#x} and later are accepted"
            ),
            Self::TooManyEntries { entries } => write!(
                f,
                "the memory map of the zero page has {entries} entries; at most {ENTRIES_MAX} are accepted"
            ),
            Self::Memory(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for LinuxBootError {}

impl From<EarlyError> for LinuxBootError {
    fn from(error: EarlyError) -> Self {
        Self::Memory(error)
    }
}

/// Adds the memory that the loader reports, and reserves what it left there (the zero page, the command line, the initial disk,
/// the list of additional data, EFI's own map) and the first MiB.
///
/// # Errors
/// [`LinuxBootError`].
pub fn read<const RANGES: usize>(
    from: &(impl Physical + ?Sized),
    zero_page: u64,
    memory: &mut EarlyMemory<RANGES>,
) -> Result<Told, LinuxBootError> {
    let missing = LinuxBootError::NoZeroPage { address: zero_page };
    let page = from.bytes(zero_page, ZERO_PAGE).ok_or(missing)?;
    if page.get(0x202..0x206) != Some(MAGIC) {
        return Err(missing);
    }
    let half = |at| le32(page, at).map(u64::from).ok_or(missing);
    let version = le16(page, 0x206).ok_or(missing)?;
    if version < VERSION_MIN {
        return Err(LinuxBootError::Version { version });
    }
    let entries = *page.get(0x1e8).ok_or(missing)?;
    if entries > ENTRIES_MAX {
        return Err(LinuxBootError::TooManyEntries { entries });
    }
    let map = page.get(0x2d0..).ok_or(missing)?.chunks_exact(20).take(entries.into());
    memory.add_map(map.filter_map(entry));
    memory.leave_first_mib()?;
    memory.reserve(zero_page, ZERO_PAGE as u64)?;
    add_setup_data(from, le64(page, 0x250).ok_or(missing)?, memory)?;
    let efi_map = half(0x1d0)? | half(0x1dc)? << 32;
    if efi_map != 0 {
        memory.reserve(efi_map, half(0x1d4)?)?;
    }
    // Each 64-bit address is in two halves, of which the older was there first.
    let disk = half(0x218)? | half(0xc0)? << 32;
    let disk_bytes = half(0x21c)? | half(0xc4)? << 32;
    if disk != 0 {
        memory.reserve(disk, disk_bytes)?;
    }
    let line = half(0x228)? | half(0xc8)? << 32;
    let most = half(0x238)?.min(ZERO_PAGE as u64);
    let byte = |at: u64| Some(from.bytes(line.checked_add(at)?, 1)?[0]);
    let length = match line {
        0 => 0,
        _ => (0..most).take_while(|&at| byte(at).is_some_and(|byte| byte != 0)).count() as u64,
    };
    if length > 0 {
        memory.reserve(line, length + 1)?;
    }
    Ok(Told { rsdp: le64(page, 0x70).ok_or(missing)?, command_line: (line, length) })
}

/// Start, length and whether it may be used, of an entry of the map.
fn entry(entry: &[u8]) -> Option<(u64, u64, bool)> {
    Some((le64(entry, 0)?, le64(entry, 8)?, le32(entry, 16)? == USABLE))
}

/// Reserves the pieces of additional data, of which each has the address of the next; one kind continues the map.
fn add_setup_data<const RANGES: usize>(
    from: &(impl Physical + ?Sized),
    first: u64,
    memory: &mut EarlyMemory<RANGES>,
) -> Result<(), EarlyError> {
    const HEADER: usize = 16;
    let mut at = first;
    for _ in 0..SETUP_DATA_MAX {
        let Some(header) = from.bytes(at, HEADER).filter(|_| at != 0) else { break };
        let fields = (le64(header, 0), le32(header, 8), le32(header, 12));
        let (Some(next), Some(kind), Some(length)) = fields else { break };
        memory.reserve(at, HEADER as u64 + u64::from(length))?;
        let data = || from.bytes(at + HEADER as u64, length as usize);
        if kind == MORE_OF_THE_MAP
            && let Some(data) = data()
        {
            memory.add_map(data.chunks_exact(20).filter_map(entry));
        }
        at = next;
    }
    Ok(())
}
