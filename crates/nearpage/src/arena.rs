//! Metadata out of the caller's buffers: typed slices carved from bytes, once, at `new`.
//!
//! Nothing that is carved is ever dropped: what the core keeps in metadata has no destructor that matters.
#![allow(unsafe_code)]

use core::marker::PhantomData;

use crate::frame::{MapWords, SectionLists};
use crate::sync::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

/// A buffer is smaller than [`Need`] said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutOfMetadata;

/// Types for which any bytes are a value, so that a slice of them need not be written first.
///
/// # Safety
/// * Every bit pattern is a valid value.
/// * The type has no padding that matters and no destructor.
pub unsafe trait AnyBytes {}

// SAFETY: an array of atomics and atomics: integers of any value.
unsafe impl AnyBytes for SectionLists {}
// SAFETY: an array of atomics: integers of any value.
unsafe impl AnyBytes for MapWords {}
// SAFETY: an array of such values.
unsafe impl<T: AnyBytes, const N: usize> AnyBytes for [T; N] {}
// SAFETY: an integer of any value.
unsafe impl AnyBytes for AtomicU16 {}
// SAFETY: an integer of any value.
unsafe impl AnyBytes for AtomicU32 {}
// SAFETY: an integer of any value.
unsafe impl AnyBytes for AtomicU64 {}
// SAFETY: an integer of any value.
unsafe impl AnyBytes for AtomicU8 {}

/// Adds up the bytes that slices will need, before there is a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Need {
    bytes: usize,
}

impl Need {
    /// Adds room for `len` values of `T`, wherever the slice before ends.
    pub const fn add<T>(&mut self, len: usize) {
        let most_padding = align_of::<T>() - 1;
        self.bytes = match size_of::<T>().checked_mul(len) {
            Some(bytes) => self.bytes.saturating_add(bytes).saturating_add(most_padding),
            None => usize::MAX,
        };
    }

    /// Bytes needed so far.
    pub const fn bytes(self) -> usize {
        self.bytes
    }
}

/// A buffer that slices are carved from, front to back.
#[derive(Debug)]
pub struct Arena<'m> {
    next: *mut u8,
    left: usize,
    buffer: PhantomData<&'m mut [u8]>,
}

impl<'m> Arena<'m> {
    /// An arena over `buffer`, all of it free.
    pub fn new(buffer: &'m mut [u8]) -> Self {
        Self { next: buffer.as_mut_ptr(), left: buffer.len(), buffer: PhantomData }
    }

    /// Carves `len` values of `T` and leaves their bytes as they are in the buffer.
    pub fn untouched<T: AnyBytes>(&mut self, len: usize) -> Result<&'m [T], OutOfMetadata> {
        let start = self.carve::<T>(len)?;
        // SAFETY: `carve` gave `len` aligned places that nobody else has, alive for 'm; the buffer was
        // initialized bytes, and any bytes are a `T`.
        Ok(unsafe { core::slice::from_raw_parts(start, len) })
    }

    /// Carves `len` values, made one by one from their index.
    pub fn slice<T>(
        &mut self,
        len: usize,
        mut make: impl FnMut(usize, &mut Self) -> Result<T, OutOfMetadata>,
    ) -> Result<&'m mut [T], OutOfMetadata> {
        let start = self.carve::<T>(len)?;
        for index in 0..len {
            let value = make(index, self)?;
            // SAFETY: `index < len`, and `carve` gave `len` aligned places that nobody else has.
            unsafe { start.add(index).write(value) };
        }
        // SAFETY: as above, and all `len` values were written.
        Ok(unsafe { core::slice::from_raw_parts_mut(start, len) })
    }

    fn carve<T>(&mut self, len: usize) -> Result<*mut T, OutOfMetadata> {
        let padding = self.next.align_offset(align_of::<T>());
        let bytes = size_of::<T>().checked_mul(len).ok_or(OutOfMetadata)?;
        let all = bytes.checked_add(padding).ok_or(OutOfMetadata)?;
        if all > self.left {
            return Err(OutOfMetadata);
        }
        // SAFETY: `padding + bytes <= left`, the bytes from `next` to the end of the buffer.
        let (start, next) = unsafe { (self.next.add(padding), self.next.add(all)) };
        self.next = next;
        self.left -= all;
        Ok(start.cast())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn carved_slices_fit_the_need_and_do_not_overlap() {
        let mut need = Need::default();
        need.add::<u8>(3);
        need.add::<u64>(4);
        need.add::<u16>(5);
        let mut buffer = std_alloc::vec![0; need.bytes()];
        let mut arena = Arena::new(&mut buffer);
        let bytes = arena.slice(3, |index, _| Ok(index as u8)).unwrap();
        let words = arena.slice(4, |index, _| Ok(index as u64 + 10)).unwrap();
        let halves = arena.slice(5, |index, _| Ok(index as u16 + 100)).unwrap();
        assert_eq!(bytes, [0, 1, 2]);
        assert_eq!(words, [10, 11, 12, 13]);
        assert_eq!(halves, [100, 101, 102, 103, 104]);
    }

    #[test]
    fn a_buffer_too_small_is_refused() {
        let mut buffer = [0; 15];
        let mut arena = Arena::new(&mut buffer);
        assert_eq!(arena.slice(2, |_, _| Ok(0_u64)).unwrap_err(), OutOfMetadata);
        assert_eq!(arena.slice(usize::MAX, |_, _| Ok(0_u64)).unwrap_err(), OutOfMetadata);
        let untouched: &[AtomicU8] = arena.untouched(15).unwrap();
        assert_eq!(untouched.len(), 15);
    }
}
