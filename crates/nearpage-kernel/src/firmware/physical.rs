//! How a reader looks into physical memory.

/// Physical memory, to be looked into: a kernel that maps all of it gives slices of the map, a test an array.
pub trait Physical {
    /// `length` bytes at `address`, if they can be read. What is there must not change while the slice is used.
    fn bytes(&self, address: u64, length: usize) -> Option<&[u8]>;
}
