//! What a benchmark needs from an allocator of objects.

/// An allocator of objects. It lives as long as the process.
pub trait ObjectSource: Send + Sync + 'static {
    /// Allocates `SIZE` bytes; null if there is no memory left.
    fn alloc<const SIZE: usize>(&self) -> *mut u8;

    /// Frees an object.
    ///
    /// # Safety
    ///
    /// * `object` came from this source, for the same `SIZE`, and was not freed since.
    unsafe fn free<const SIZE: usize>(&self, object: *mut u8);
}
