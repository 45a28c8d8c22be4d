//! Addresses of the core and pointers of a program.

use std::ptr::NonNull;

use nearpage::Address;

use crate::memory::Memory;

/// The address that a pointer has.
#[inline(always)]
pub(super) fn address_of(pointer: *const u8) -> Address {
    Address(pointer.addr() as u64)
}

impl Memory {
    /// The pointer to an address of this memory that the core handed out.
    #[inline(always)]
    pub(super) fn pointer(&self, address: Address) -> NonNull<u8> {
        let start = self.region.start().as_ptr();
        // SAFETY: the core handed the address out, so it lies in the region, which is not at 0.
        unsafe { NonNull::new_unchecked(start.with_addr(address.0 as usize)) }
    }
}
