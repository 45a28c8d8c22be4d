//! Compact numbers of objects: what stands in the stacks, in 32 bits.
//!
//! All objects of a cache begin at multiples of its *unit*, a power of two: its alignment, or the whole size if
//! that is a power of two. The number is the distance from the beginning of the machine's memory in units. So a
//! number becomes an address by a shift and an addition, without a look at anything else, and an address a
//! number by a subtraction and a rotation, which also finds addresses off the unit.
//!
//! What it costs: 32 bits reach 32 GiB in units of 8 bytes. On a machine whose memory spans more, all objects are
//! aligned to more ([`unit_min`]): 16 bytes up to 64 GiB, 32 up to 128 GiB, and so on. One base for the whole machine,
//! not one a node: a thread that has taken a number and not yet made an address of it may meanwhile see its CPU's
//! node change.

use nearpage::{Address, Pfn};

/// Numbers that are entries: the last two are answers of [`Pop`](nearpage::platform::Pop).
const ENTRIES: u64 = u32::MAX as u64 - 1;

/// The least unit for a machine whose memory spans `bytes`.
pub const fn unit_min(bytes: u64) -> u64 {
    let unit = bytes.div_ceil(ENTRIES).next_power_of_two();
    if unit < 8 { 8 } else { unit }
}

/// Turns addresses of a cache's objects into numbers and back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EntryCode {
    base: u64,
    shift: u32,
    /// `1 << shift`: to multiply by it is one step, to shift by a number that is not known three.
    unit: u64,
}

impl EntryCode {
    /// For objects at multiples of `1 << shift` bytes in a machine whose memory begins at `base`.
    pub const fn new(base: Address, shift: u32) -> Self {
        Self { base: base.0, shift, unit: 1 << (shift & 63) }
    }

    /// The address of an object.
    #[inline(always)]
    pub const fn address(self, entry: u32) -> Address {
        Address(self.base + entry as u64 * self.unit)
    }

    /// The number of an address, if an object may begin there.
    #[inline(always)]
    pub const fn entry(self, address: Address) -> Option<u32> {
        // Bits below the unit come out on top, as do those of addresses out of reach.
        let rotated = address.0.wrapping_sub(self.base).rotate_right(self.shift);
        if rotated < ENTRIES { Some(rotated as u32) } else { None }
    }

    /// The frame that an object begins in, counted from the beginning of the machine's memory, and where in
    /// it.
    #[inline]
    pub const fn frame(self, entry: u32, page_shift: u32) -> (u32, u32) {
        let offset = (entry as u64) << (self.shift & 63);
        ((offset >> page_shift) as u32, (offset & ((1 << page_shift) - 1)) as u32)
    }

    /// The number of the object that begins `offset` bytes into the frame with this number.
    #[inline]
    pub const fn at(self, frame: u32, offset: u32, page_shift: u32) -> u32 {
        ((((frame as u64) << page_shift) + offset as u64) >> (self.shift & 63)) as u32
    }
}

/// Frame numbers of the machine: PFNs from the beginning of its first section.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frames {
    /// The first.
    pub base: Pfn,
    /// Log2 of the page size in bytes.
    pub page_shift: u32,
}

impl Frames {
    /// The PFN of frame `number`.
    #[inline]
    pub const fn pfn(self, number: u32) -> Pfn {
        Pfn(self.base.0 + number as u64)
    }

    /// The number of `pfn`, which lies in the machine.
    #[inline]
    pub const fn number(self, pfn: Pfn) -> u32 {
        (pfn.0 - self.base.0) as u32
    }

    /// The first address of the machine.
    #[inline]
    pub const fn start(self) -> Address {
        Address::from_pfn(self.base, self.page_shift)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_addresses_are_one_to_one() {
        let base = Address(0x7f12_3400_0000);
        for shift in [3, 6, 10, 12] {
            let code = EntryCode::new(base, shift);
            for entry in [0, 1, 511, 0x7fff_ffff, u32::MAX - 2] {
                let address = code.address(entry);
                assert_eq!(code.entry(address), Some(entry));
                assert_eq!(code.entry(Address(address.0 + 1)), None, "off the unit");
                assert_eq!(code.entry(Address(address.0 + (1 << shift) / 2)), None);
                let (frame, offset) = code.frame(entry, 12);
                assert_eq!(base.0 + ((frame as u64) << 12) + offset as u64, address.0);
                assert_eq!(code.at(frame, offset, 12), entry);
            }
            assert_eq!(code.entry(Address(base.0 - (1 << shift))), None, "below");
            assert_eq!(code.entry(Address(base.0 + ((u32::MAX as u64) << shift))), None, "above");
        }
    }

    #[test]
    fn units_grow_with_the_machine() {
        assert_eq!(unit_min(0), 8);
        assert_eq!(unit_min(30 << 30), 8);
        assert_eq!(unit_min(33 << 30), 16);
        assert_eq!(unit_min(256 << 30), 128);
        assert_eq!(unit_min(255 << 30), 64);
    }
}
