//! Waiting for a bit of any word in managed memory.

use core::time::Duration;

use super::allocator::PageAllocator;
use crate::error::PageLockError;
use crate::host::Platform;
use crate::page_wait::{Awaited, Key, Site};
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::units::Pfn;

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

impl<'m, P: Platform> PageAllocator<'m, P> {
    /// Waits until a bit of a word is clear. The word lies in managed memory, at `address`: its frame number
    /// times the page size, and the offset. Who clears the bit calls [`wake_up_bit`](Self::wake_up_bit)
    /// after it.
    ///
    /// # Errors
    /// [`PageLockError::OutsideMemory`], [`PageLockError::NoSuchBit`], and as
    /// [`PageLock::lock_timeout`](crate::pagelock::PageLock::lock_timeout).
    pub fn wait_on_bit<W: BitWord>(
        &self,
        word: &W,
        address: u64,
        bit: u32,
        timeout: Option<Duration>,
    ) -> Result<(), PageLockError> {
        let site = self.bit_site_of::<W>(address, bit)?;
        let is_clear = || word.is_clear(bit);
        if is_clear() { Ok(()) } else { self.block(Awaited::Clear(site, &is_clear), timeout) }
    }

    /// Wakes all who wait for a bit of the word of type `W` at `address`, which the caller has cleared before. Nobody's
    /// bucket is locked if nobody waits.
    ///
    /// # Errors
    /// [`PageLockError::OutsideMemory`], [`PageLockError::NoSuchBit`].
    pub fn wake_up_bit<W: BitWord>(&self, address: u64, bit: u32) -> Result<(), PageLockError> {
        self.bit_site_of::<W>(address, bit)?.wake_all();
        Ok(())
    }

    fn bit_site_of<W: BitWord>(
        &self,
        address: u64,
        bit: u32,
    ) -> Result<Site<'_, P>, PageLockError> {
        if bit >= W::BITS {
            return Err(PageLockError::NoSuchBit { bit, bits: W::BITS });
        }
        self.bit_site(address, bit)
    }

    /// Where a bit of the word at `address` is waited for: for waits that the caller drives
    /// ([`Wait`](crate::pagelock::Wait)).
    ///
    /// # Errors
    /// [`PageLockError::OutsideMemory`].
    pub fn bit_site(&self, address: u64, bit: u32) -> Result<Site<'_, P>, PageLockError> {
        let pfn = Pfn(address >> self.page_shift());
        if !self.is_online(pfn) {
            return Err(PageLockError::OutsideMemory { address });
        }
        Ok(self.site(pfn, Key::bit(address, bit)))
    }
}
