//! The memory that an allocator takes, and whether the pages that it gives are what was asked for.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::{fs, io};

use serde::Serialize;

use crate::source::{HUGE_PAGE, PAGE, PAGE_BYTES, PageSource, alloc_each, block_bytes};
use crate::task::Work;
use crate::workers::Workers;

/// Memory of an allocator that has given out `pages` pages which nobody has touched yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Footprint {
    /// Pages given out.
    pub pages: usize,
    /// What the process has in memory since the allocator was set up, these pages included as far as
    /// they are there: allocators that keep links in free pages have touched them.
    pub resident_bytes: u64,
    /// The part of that outside of these pages: metadata, and what is kept for later.
    pub beside_pages_bytes: u64,
}

/// Bytes that the process has in memory, counted page by page.
///
/// `statm` has the same figure from per-CPU counters that lag behind by some hundred KiB.
///
/// # Errors
///
/// The error of reading `/proc/self/smaps_rollup`, or its lack of a line `Rss:`.
pub fn resident_bytes() -> io::Result<u64> {
    let rollup = fs::read_to_string("/proc/self/smaps_rollup")?;
    let kib = rollup.lines().find_map(|line| line.strip_prefix("Rss:")?.trim().strip_suffix(" kB"));
    let kib: Option<u64> = kib.and_then(|kib| kib.parse().ok());
    Ok(kib.ok_or(io::ErrorKind::InvalidData)? * 1024)
}

/// Fills `source` with `pages` pages on the first thread and empties it again.
///
/// # Errors
///
/// What is wrong with the pages, or why the memory could not be counted.
pub fn of<S: PageSource>(
    source: &'static S,
    workers: &Workers,
    before: u64,
    pages: usize,
) -> Result<Footprint, String> {
    let mut outcomes = workers.on_each(1, move |_| {
        // What the array of blocks takes is not the allocator's.
        let before_array = resident_bytes().map_err(unreadable)?;
        let mut held = Vec::new();
        held.resize(pages, S::BLANK);
        let array = resident_bytes().map_err(unreadable)?.saturating_sub(before_array);
        let got = alloc_each(source, &mut held);
        let after = resident_bytes().map_err(unreadable);
        let addresses: Vec<usize> = held[..got].iter().map(|&held| source.address(held)).collect();
        let footprint =
            after.and_then(|after| inspect(after.saturating_sub(before + array), pages, addresses));
        for &block in held[..got].iter().rev() {
            // SAFETY: allocated above, and freed once.
            unsafe { source.free(block, PAGE) };
        }
        try_huge_page(source)?;
        footprint
    });
    outcomes.remove(0)
}

fn unreadable(error: io::Error) -> String {
    format!("/proc/self/smaps_rollup: {error}")
}

fn try_huge_page<S: PageSource>(source: &S) -> Result<(), String> {
    if !source.runs(Work::HugePair) {
        return Ok(());
    }
    let block = source.alloc(HUGE_PAGE).ok_or("no 2 MiB block")?;
    let address = source.address(block);
    // SAFETY: allocated above, and freed once.
    unsafe { source.free(block, HUGE_PAGE) };
    match address.is_multiple_of(block_bytes(HUGE_PAGE)) {
        true => Ok(()),
        false => Err(format!("the 2 MiB block at {address:#x} is not aligned to 2 MiB")),
    }
}

fn inspect(
    resident_bytes: u64,
    asked: usize,
    mut addresses: Vec<usize>,
) -> Result<Footprint, String> {
    let pages = addresses.len();
    if pages < asked {
        return Err(format!("out of memory after {pages} of {asked} pages"));
    }
    addresses.sort_unstable();
    if let Some(address) = addresses.iter().find(|&&address| address % PAGE_BYTES != 0) {
        return Err(format!("the page at {address:#x} is not aligned to {PAGE_BYTES} bytes"));
    }
    if let Some(twins) = addresses.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(format!("the page at {:#x} was given out twice", twins[0]));
    }
    let touched =
        touched_pages(&addresses).map_err(|error| format!("/proc/self/pagemap: {error}"))?;
    let beside_pages_bytes = resident_bytes.saturating_sub((touched * PAGE_BYTES) as u64);
    Ok(Footprint { pages, resident_bytes, beside_pages_bytes })
}

/// How many of the pages at `addresses` are in memory. Linux: `Documentation/admin-guide/mm/pagemap.rst`.
fn touched_pages(addresses: &[usize]) -> io::Result<usize> {
    const ENTRY_BYTES: usize = 8;
    const PRESENT: u64 = 1 << 63;
    let pagemap = File::open("/proc/self/pagemap")?;
    let mut present = 0;
    for address in addresses {
        let mut entry = [0; ENTRY_BYTES];
        pagemap.read_exact_at(&mut entry, (address / PAGE_BYTES * ENTRY_BYTES) as u64)?;
        present += usize::from(u64::from_ne_bytes(entry) & PRESENT != 0);
    }
    Ok(present)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_pages_are_named() {
        let of = |asked, addresses: &[usize]| inspect(0, asked, addresses.to_vec());
        assert_eq!(of(3, &[4096]), Err("out of memory after 1 of 3 pages".into()));
        let misaligned = "the page at 0x2008 is not aligned to 4096 bytes";
        assert_eq!(of(2, &[4096, 8200]), Err(misaligned.into()));
        let twice = "the page at 0x1000 was given out twice";
        assert_eq!(of(3, &[4096, 8192, 4096]), Err(twice.into()));
    }

    #[test]
    fn pages_in_memory_are_told_from_those_beside_them() {
        let block = vec![1_u8; 64 * PAGE_BYTES];
        let first = block.as_ptr().addr().next_multiple_of(PAGE_BYTES);
        let addresses: Vec<usize> = (0..32).map(|page| first + page * PAGE_BYTES).collect();
        let footprint = inspect(40 * PAGE_BYTES as u64, 32, addresses);
        let beside = footprint.map(|footprint| footprint.beside_pages_bytes);
        assert_eq!(beside, Ok(8 * PAGE_BYTES as u64));
    }

    #[test]
    fn touching_memory_makes_it_resident() {
        let before = resident_bytes().expect("smaps_rollup");
        let block = std::hint::black_box(vec![1_u8; 64 << 20]);
        let after = resident_bytes().expect("smaps_rollup");
        assert!(after - before >= block.len() as u64 / 2, "{before} {after}");
    }
}
