//! Memory maps that are right, and maps that are wrong.

use std::string::ToString;
use std::vec::Vec;

use super::*;

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
