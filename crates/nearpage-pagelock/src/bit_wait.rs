//! Waiting for a bit of any word in managed memory.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use nearpage::{PageAllocator, Pfn};

use crate::error::PageLockError;
use crate::hash::Key;
use crate::page::site;
use crate::platform::PageLockPlatform;
use crate::wait::Site;

/// A word of which somebody can wait for a bit.
pub trait BitWord {
    /// Bits that it has.
    const BITS: u32;
    /// Whether a bit is clear; what was written before it was cleared is visible then. Asked under the lock of a
    /// bucket too: it may neither wait nor touch a page lock.
    fn is_clear(&self, bit: u32) -> bool;
}

impl BitWord for AtomicU32 {
    const BITS: u32 = u32::BITS;
    fn is_clear(&self, bit: u32) -> bool {
        // Acquire pairs with the Release of whoever clears the bit.
        self.load(Ordering::Acquire) >> bit & 1 == 0
    }
}

impl BitWord for AtomicU64 {
    const BITS: u32 = u64::BITS;
    fn is_clear(&self, bit: u32) -> bool {
        // Acquire pairs with the Release of whoever clears the bit.
        self.load(Ordering::Acquire) >> bit & 1 == 0
    }
}

/// Where a bit of a word of type `W` is waited for.
pub(crate) fn bit_site_of<'a, W: BitWord, P: PageLockPlatform>(
    pages: &'a PageAllocator<'_, P>,
    address: u64,
    bit: u32,
) -> Result<Site<'a, P>, PageLockError> {
    if bit >= W::BITS {
        return Err(PageLockError::NoSuchBit { bit, bits: W::BITS });
    }
    bit_site(pages, address, bit)
}

/// Where a bit of the word at `address` is waited for.
pub(crate) fn bit_site<'a, P: PageLockPlatform>(
    pages: &'a PageAllocator<'_, P>,
    address: u64,
    bit: u32,
) -> Result<Site<'a, P>, PageLockError> {
    let pfn = Pfn(address >> pages.page_shift());
    if !pages.is_online(pfn) {
        return Err(PageLockError::OutsideMemory { address });
    }
    Ok(site(pages, pfn, Key::bit(address, bit)))
}
