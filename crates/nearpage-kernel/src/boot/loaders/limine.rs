//! Limine's memory map (crate `limine`).

use limine::memory_map::{Entry, EntryType};

use crate::boot::EarlyMemory;

/// Adds what is usable. What the loader may be asked to give back ([`EntryType::BOOTLOADER_RECLAIMABLE`]) holds its answers, its
/// page tables and the stack: a kernel that has left all of them adds it with [`add_reclaimable`].
pub fn add<const RANGES: usize>(entries: &[&Entry], memory: &mut EarlyMemory<RANGES>) {
    add_all(entries, EntryType::USABLE, memory);
}

/// Adds what the loader used.
pub fn add_reclaimable<const RANGES: usize>(entries: &[&Entry], memory: &mut EarlyMemory<RANGES>) {
    add_all(entries, EntryType::BOOTLOADER_RECLAIMABLE, memory);
}

fn add_all<const RANGES: usize>(
    entries: &[&Entry],
    of: EntryType,
    memory: &mut EarlyMemory<RANGES>,
) {
    let of_type = entries.iter().filter(|entry| entry.entry_type == of);
    memory.add_map(of_type.map(|entry| (entry.base, entry.length, true)));
}
