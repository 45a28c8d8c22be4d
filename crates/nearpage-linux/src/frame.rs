//! Frames of this host: 4 KiB whatever the kernel's page size is.

use nearpage::{AllocError, Order};

/// Log2 of [`FRAME_BYTES`].
pub const FRAME_SHIFT: u32 = 12;
/// Bytes of a frame, and of a page of order 0: 4 KiB, whatever the kernel's page size is.
pub const FRAME_BYTES: u64 = 1 << FRAME_SHIFT;

/// The order of the smallest block with `pages` pages; 0 pages are 1.
pub(crate) fn order_of(pages: u64) -> Result<Order, AllocError> {
    let too_many = AllocError::TooManyPages { pages };
    let order = pages.checked_next_power_of_two().ok_or(too_many)?.trailing_zeros();
    if order > Order::MAX.0 as u32 { Err(too_many) } else { Ok(Order(order as u8)) }
}
