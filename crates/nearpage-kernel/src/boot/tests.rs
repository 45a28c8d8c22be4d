//! Memory maps that are right, and maps that are wrong.

use std::string::ToString;
use std::vec::Vec;

use nearpage::testing::random::Random;

use super::*;
use crate::firmware::Physical;
use crate::fuzz::fuzz;

/// Physical memory of one array, at an address.
struct Array {
    start: u64,
    bytes: Vec<u8>,
}

impl Physical for Array {
    fn bytes(&self, address: u64, length: usize) -> Option<&[u8]> {
        let at = usize::try_from(address.checked_sub(self.start)?).ok()?;
        self.bytes.get(at..at.checked_add(length)?)
    }
}

impl Array {
    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

/// Entries of E820: start, length, kind.
const MAP: [(u64, u64, u32); 3] =
    [(0, 0x9_fc00, 1), (0xf_0000, 0x1_0000, 2), (0x10_0000, 0x7f0_0000, 1)];
/// Where the arrays of these tests lie.
const START: u64 = 0x9_0000;

/// A zero page, with a command line behind it.
fn zero_page() -> Array {
    let mut page = Array { start: START, bytes: std::vec![0; 4096 + 64] };
    page.put(0x1e8, &[MAP.len() as u8]);
    page.put(0x202, b"HdrS");
    page.put(0x206, &0x020f_u16.to_le_bytes());
    page.put(0x70, &0xf_1234_u64.to_le_bytes());
    page.put(0x218, &0x0200_0000_u32.to_le_bytes());
    page.put(0x21c, &0x0010_0000_u32.to_le_bytes());
    page.put(0x228, &((START + 4096) as u32).to_le_bytes());
    page.put(0x238, &2047_u32.to_le_bytes());
    for (at, (start, length, kind)) in MAP.into_iter().enumerate() {
        page.put(0x2d0 + 20 * at, &start.to_le_bytes());
        page.put(0x2d8 + 20 * at, &length.to_le_bytes());
        page.put(0x2e0 + 20 * at, &kind.to_le_bytes());
    }
    page.put(4096, b"quiet seed=7");
    page
}

/// A PVH start info with its map, and a module's list, behind it.
fn start_info() -> Array {
    let mut info = Array { start: START, bytes: std::vec![0; 256] };
    info.put(0, &0x336e_c578_u32.to_le_bytes());
    info.put(4, &1_u32.to_le_bytes());
    info.put(12, &1_u32.to_le_bytes());
    info.put(16, &(START + 192).to_le_bytes());
    info.put(24, &(START + 224).to_le_bytes());
    info.put(32, &0xf_1234_u64.to_le_bytes());
    info.put(40, &(START + 64).to_le_bytes());
    info.put(48, &(MAP.len() as u32).to_le_bytes());
    for (at, (start, length, kind)) in MAP.into_iter().enumerate() {
        info.put(64 + 24 * at, &start.to_le_bytes());
        info.put(72 + 24 * at, &length.to_le_bytes());
        info.put(80 + 24 * at, &kind.to_le_bytes());
    }
    info.put(192, &0x0200_0000_u64.to_le_bytes());
    info.put(200, &0x0010_0000_u64.to_le_bytes());
    info.put(224, b"seed=7");
    info
}

#[test]
fn a_zero_page_is_read() {
    let page = zero_page();
    let mut memory = EarlyMemory::<16>::new();
    let told = linux::read(&page, START, &mut memory).expect("it is right");
    assert_eq!(told, linux::Told { rsdp: 0xf_1234, command_line: (START + 4096, 12) });
    assert!(memory.ranges().eq([0..0x9_fc00, 0x10_0000..0x800_0000]));
    // The first MiB, with the zero page in it, and the initial disk are not handed out.
    assert_eq!(memory.free_bytes(), 0x7f0_0000 - 0x10_0000);
    let refused = |change: &dyn Fn(&mut Array)| {
        let mut page = zero_page();
        change(&mut page);
        let read = linux::read(&page, START, &mut EarlyMemory::<16>::new());
        read.expect_err("it is wrong").to_string()
    };
    assert!(refused(&|page| page.put(0x202, b"----")).contains("no zero page"));
    assert!(refused(&|page| page.bytes.truncate(4095)).contains("0x90000"));
    assert!(refused(&|page| page.put(0x206, &[0, 2])).contains("version 0x200"));
    assert!(refused(&|page| page.put(0x1e8, &[129])).contains("129 entries"));
    // An entry that wraps around is left out, and the boot goes on.
    let mut page = zero_page();
    page.put(0x2d0, &[0xff; 8]);
    let mut memory = EarlyMemory::<16>::new();
    linux::read(&page, START, &mut memory).expect("the rest is right");
    assert!(memory.ranges().eq(core::iter::once(0x10_0000..0x800_0000)));
    assert_eq!(memory.left_out(), LeftOut { ranges: 1, bytes: 0 });
}

#[test]
fn a_start_info_is_read() {
    let info = start_info();
    let mut memory = EarlyMemory::<16>::new();
    let told = pvh::read(&info, START, &mut memory).expect("it is right");
    assert_eq!((told.rsdp, told.command_line(&info)), (0xf_1234, &b"seed=7"[..]));
    assert_eq!(memory.free_bytes(), 0x7f0_0000 - 0x10_0000);
}

/// What a loader leaves above the first MiB is not handed out: each byte of it is in nothing that is.
#[test]
fn what_a_loader_leaves_is_reserved() {
    const HIGH: u64 = 0x30_0000;
    // Moved up, with additional data behind: another piece of the map, then one of a kind that nobody knows.
    let mut page = Array { start: HIGH, ..zero_page() };
    page.bytes.resize(0x3000, 0);
    let line = (HIGH + 4096) as u32;
    page.put(0x228, &line.to_le_bytes());
    page.put(0x250, &(HIGH + 0x2000).to_le_bytes());
    page.put(0x1d0, &0x50_0000_u32.to_le_bytes());
    page.put(0x1d4, &0x2000_u32.to_le_bytes());
    page.put(0x2000, &(HIGH + 0x2800).to_le_bytes());
    page.put(0x2008, &1_u32.to_le_bytes());
    page.put(0x200c, &20_u32.to_le_bytes());
    page.put(0x2010, &0x1000_0000_u64.to_le_bytes());
    page.put(0x2018, &0x10_0000_u64.to_le_bytes());
    page.put(0x2020, &1_u32.to_le_bytes());
    // The last names itself: a list without an end is left.
    page.put(0x2800, &(HIGH + 0x2800).to_le_bytes());
    page.put(0x2808, &77_u32.to_le_bytes());
    page.put(0x280c, &0x100_u32.to_le_bytes());
    let mut memory = EarlyMemory::<16>::new();
    linux::read(&page, HIGH, &mut memory).expect("it is right");
    assert!(memory.ranges().any(|range| range == (0x1000_0000..0x1010_0000)));
    // The zero page, the disk, EFI's map; the line; 36 and 272 bytes of additional data.
    let taken = 4096 + 0x10_0000 + 0x2000 + 13 + 36 + 272;
    assert_eq!(memory.free_bytes(), 0x7f0_0000 + 0x10_0000 - taken);

    let mut info = Array { start: HIGH, ..start_info() };
    info.put(16, &(HIGH + 192).to_le_bytes());
    info.put(24, &(HIGH + 224).to_le_bytes());
    info.put(40, &(HIGH + 64).to_le_bytes());
    let mut memory = EarlyMemory::<16>::new();
    pvh::read(&info, HIGH, &mut memory).expect("it is right");
    // The start info, the map, the list of modules, the line, and the module.
    let taken = 56 + 24 * MAP.len() as u64 + 32 + 7 + 0x10_0000;
    assert_eq!(memory.free_bytes(), 0x7f0_0000 - taken);
}

/// Memory of which any address can be looked at.
struct Anywhere(Array);

impl Physical for Anywhere {
    fn bytes(&self, address: u64, length: usize) -> Option<&[u8]> {
        self.0.bytes(address, length).or(self.0.bytes.get(..length))
    }
}

#[test]
fn a_command_line_at_the_end_of_all_addresses_ends_there() {
    let (mut info, mut page) = (start_info(), zero_page());
    info.put(24, &(u64::MAX - 3).to_le_bytes());
    page.put(0x228, &[0xff; 4]);
    page.put(0xc8, &[0xff; 4]);
    page.bytes[0] = b'x';
    let (mut memory, address) = (EarlyMemory::<16>::new(), u64::MAX - 3);
    let wraps = EarlyError::Range { start: address, length: 5 };
    let info = Anywhere(info);
    assert_eq!(pvh::read(&info, START, &mut memory), Err(pvh::PvhError::Memory(wraps)));
    let wraps = EarlyError::Range { start: u64::MAX, length: 2 };
    let told = linux::read(&Anywhere(page), START, &mut memory);
    assert_eq!(told, Err(linux::LinuxBootError::Memory(wraps)));
}

/// A firmware's own memory in the midst of what it also says may be used: never handed out, in whatever order it is told.
#[test]
fn where_entries_overlap_the_stricter_is_right() {
    const OWN: (u64, u64, u32) = (0x400_0000, 0x10_0000, 2);
    let free = 0x7f0_0000 - 0x10_0000 - 0x10_0000;
    for at in 0..2 {
        // The first entry of the map, or that between the others, becomes the one that is not to be used.
        let (start, length, kind) = OWN;
        let (mut page, mut info) = (zero_page(), start_info());
        for (array, place) in [(&mut page, 0x2d0 + 20 * at), (&mut info, 64 + 24 * at)] {
            array.put(place, &start.to_le_bytes());
            array.put(place + 8, &length.to_le_bytes());
            array.put(place + 16, &kind.to_le_bytes());
        }
        let (mut of_page, mut of_info) = (EarlyMemory::<16>::new(), EarlyMemory::<16>::new());
        linux::read(&page, START, &mut of_page).expect("it is right");
        pvh::read(&info, START, &mut of_info).expect("it is right");
        assert_eq!(of_page.free_bytes(), free);
        assert_eq!(of_info.free_bytes(), free);
        while let Ok(taken) = of_page.alloc(0x10_0000, 0x1000) {
            assert!(taken + 0x10_0000 <= start || taken >= start + length, "{taken:#x}");
        }
    }
    let mut memory = EarlyMemory::<8>::new();
    memory.add_map([(0, u64::MAX, true), (0x1000, u64::MAX, false)]);
    assert_eq!(memory.free_bytes(), 0x1000);
}

/// Maps of loaders of which bytes are changed, and noise: 10^6 inputs in a round. Nothing panics, nothing loops, and what is free
/// is there.
#[test]
fn noise() {
    fuzz(4 * INPUTS, noise_of);
}

const INPUTS: u64 = 250_000;

fn noise_of(random: &mut Random) {
    let (mut page, mut info) = (zero_page(), start_info());
    let mut accepted = 0;
    for input in 0..INPUTS {
        if input % 64 == 0 {
            (page, info) = (zero_page(), start_info());
        }
        for array in [&mut page, &mut info] {
            for _ in 0..random.below(4) {
                let at = random.below(array.bytes.len().min(0x360) as u64) as usize;
                array.bytes[at] = random.one_of(&[0, 1, 2, 0x7f, 0x80, 0xff, random.0 as u8]);
            }
        }
        let mut memory = EarlyMemory::<16>::new();
        accepted += u64::from(linux::read(&page, START, &mut memory).is_ok());
        check(&memory);
        let mut memory = EarlyMemory::<16>::new();
        if let Ok(told) = pvh::read(&info, START, &mut memory) {
            accepted += 1;
            assert!(told.command_line(&info).len() <= 4096);
        }
        check(&memory);
        let length = random.below(120) as usize;
        let bytes = (0..length).map(|_| random.below(256) as u8).collect();
        let noise = Array { start: random.below(3) * 64, bytes };
        let _ = pvh::read(&noise, 64, &mut memory);
        let _ = linux::read(&noise, 64, &mut memory);
        check(&memory);
    }
    assert!(accepted > INPUTS / 10, "{accepted} changes were harmless");
}

/// What a map reader should do, said by pages: what may be used and is not forbidden.
#[test]
fn long_maps_are_read_as_far_as_there_is_room() {
    let seed = 0x10_000;
    std::println!("seed {seed:#x}");
    let mut random = Random(seed);
    let mut cut = 0;
    for _ in 0..200 {
        let entries: Vec<(u64, u64, bool)> = (0..random.below(60))
            .map(|_| (random.below(200) << 12, (1 + random.below(6)) << 12, random.below(3) > 0))
            .collect();
        let mut naive = [false; 256];
        for wanted in [true, false] {
            for &(start, length, _) in entries.iter().filter(|entry| entry.2 == wanted) {
                naive[(start >> 12) as usize..((start + length) >> 12) as usize].fill(wanted);
            }
        }
        let mut memory = EarlyMemory::<12>::new();
        memory.add_map(entries.iter().copied());
        let free = memory.free_bytes() >> 12;
        let all = naive.iter().filter(|&&is_free| is_free).count() as u64;
        let left_out = memory.left_out();
        assert!(free <= all, "{entries:x?}");
        if left_out == LeftOut::default() {
            assert_eq!(free, all, "{entries:x?}");
        } else {
            cut += 1;
            // What is left out may be forbidden too.
            assert!(free + (left_out.bytes >> 12) >= all, "{entries:x?}: {left_out:?}");
        }
        while let Ok(page) = memory.alloc(0x1000, 0x1000) {
            assert!(core::mem::take(&mut naive[(page >> 12) as usize]), "{page:#x} is not free");
        }
    }
    assert!((20..180).contains(&cut), "{cut} maps were cut");
}

/// A map of 10 000 entries that do not touch: the boot has the largest of them.
#[test]
fn the_largest_of_ten_thousand_entries_are_kept() {
    let length = |entry: u64| if entry % 100 == 7 { 0x100_0000 } else { 0x1000 };
    let entry = |at: u64| (at << 28, length(at), true);
    let mut memory = EarlyMemory::<128>::new();
    memory.add_map((0..10_000).map(entry));
    assert_eq!(memory.ranges().count(), 128);
    assert_eq!(memory.free_bytes(), 100 * 0x100_0000 + 28 * 0x1000);
    assert_eq!(memory.left_out(), LeftOut { ranges: 9872, bytes: 9872 * 0x1000 });
    let told = memory.left_out().to_string();
    assert_eq!(
        told,
        "9872 ranges of memory, 39488 KiB, are not used: the map is too long or wrong"
    );
    // As many that may not be used: what lies between them is lost, the least of it first.
    let mut memory = EarlyMemory::<128>::new();
    let holes = (0..9_999).map(|at| ((at << 28) + 0x1000, 0x1000, false));
    memory.add_map(core::iter::once((0, 10_000 << 28, true)).chain(holes.clone()));
    let (free, lost) = (memory.free_bytes(), memory.left_out());
    assert_eq!(free + lost.bytes + 9_999 * 0x1000, 10_000 << 28);
    assert_eq!(lost.ranges, 9_999 - 128);
    assert!(free >= 128 << 28, "{free:#x}");
    while let Ok(page) = memory.alloc(1 << 28, 1 << 20) {
        let is_apart = |(start, length, _): (u64, u64, bool)| {
            page + (1 << 28) <= start || start + length <= page
        };
        assert!(holes.clone().all(is_apart), "{page:#x}");
    }
}

fn check(memory: &EarlyMemory<16>) {
    let there: u128 = memory.ranges().map(|range| u128::from(range.end - range.start)).sum();
    assert!(u128::from(memory.free_bytes()) <= there);
}

#[test]
fn ranges_may_come_in_any_order_and_overlap() {
    let mut memory = EarlyMemory::<8>::new();
    for (start, length) in [(0x8000, 0x4000), (0x1000, 0x2000), (0x2800, 0x5800), (0x9000, 0x1000)]
    {
        memory.add(start, length).expect("room");
    }
    assert!(memory.ranges().eq(core::iter::once(0x1000..0xc000)));
    memory.reserve(0x0, 0x1800).expect("room");
    memory.reserve(0xb000, 0x10_0000).expect("room");
    assert_eq!(memory.free_bytes(), 0xb000 - 0x1800);
    assert_eq!(memory.alloc(0x1000, 0x4000), Ok(0x8000));
    assert_eq!(memory.alloc(0x2000, 0x1000), Ok(0x9000));
    assert_eq!(memory.alloc(0x2_0000, 1), Err(EarlyError::NoRoom { bytes: 0x2_0000 }));
}

#[test]
fn a_range_that_wraps_is_refused() {
    let mut memory = EarlyMemory::<8>::new();
    let error = memory.add(u64::MAX - 10, 20).expect_err("it wraps around");
    assert_eq!(error.to_string(), "memory of 0x14 bytes at 0xfffffffffffffff5 wraps around");
    assert!(memory.reserve(u64::MAX, 1).is_err());
    assert_eq!(memory.free_bytes(), 0);
}

#[test]
fn ten_thousand_entries_are_few_ranges_or_too_many() {
    let mut memory = EarlyMemory::<64>::new();
    for entry in 0..10_000 {
        memory.add(entry << 12, 1 << 12).expect("they touch");
    }
    assert_eq!(memory.ranges().count(), 1);
    let mut memory = EarlyMemory::<64>::new();
    let added: Vec<_> = (0..10_000).map(|entry| memory.add(entry << 13, 1 << 12)).collect();
    assert!(added[..64].iter().all(Result::is_ok));
    assert_eq!(added[64], Err(EarlyError::TooMany { most: 64 }));
}
