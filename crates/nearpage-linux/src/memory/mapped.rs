//! [`MappedBytes`]: more than a block can have.

use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use nearpage::NodeId;

use super::Memory;
use crate::error::MemoryError;
use crate::region::{Region, page_size};

impl Memory {
    /// Maps `bytes` bytes of zeroes outside of this memory, aligned to `align`, on a node as this memory is bound to its nodes;
    /// without a node, where the thread that first touches a page runs. For what is larger than a block: it is no part of
    /// [limits](Self::set_limits), counters and texts.
    ///
    /// ```
    /// let memory = nearpage_linux::Memory::builder().bytes_per_node(16 << 20).build()?;
    /// let node = memory.topology().nodes()[0].id;
    /// let mut table = memory.map_bytes(1 << 30, 4096, Some(node))?; // costs what is touched of it
    /// table[1 << 29] = 1;
    /// assert_eq!(table.len(), 1 << 30);
    /// # Ok::<(), nearpage_linux::MemoryError>(())
    /// ```
    ///
    /// # Errors
    /// [`MemoryError`]: an unknown node, no addresses or no memory, or a binding that is strict and refused.
    ///
    /// # Panics
    /// If `align` is not a power of two.
    pub fn map_bytes(
        &self,
        bytes: usize,
        align: usize,
        node: Option<NodeId>,
    ) -> Result<MappedBytes, MemoryError> {
        if let Some(node) = node.filter(|&node| self.topology().index_of(node).is_none()) {
            return Err(MemoryError::UnknownNode { node });
        }
        let no_addresses =
            |error: io::Error| MemoryError::NoAddresses { bytes: bytes as u64, error };
        let whole = bytes.max(1).checked_next_multiple_of(page_size());
        let whole = whole.ok_or_else(|| no_addresses(io::ErrorKind::OutOfMemory.into()))?;
        let region = Region::reserve(whole, align.max(page_size())).map_err(no_addresses)?;
        region.make_usable(0, whole).map_err(no_addresses)?;
        if let Some(node) = node {
            let mut binding = self.binding;
            binding
                .bind(region.start(), whole, node)
                .map_err(|error| MemoryError::CannotBind { node, error })?;
        }
        Ok(MappedBytes { region, bytes })
    }
}

/// Bytes of a mapping of their own, unmapped when this is dropped.
pub struct MappedBytes {
    region: Region,
    bytes: usize,
}

impl MappedBytes {
    /// The first byte.
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.region.start()
    }
}

impl Deref for MappedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the region is that long, readable, zero or what was last written there, and this owner's alone.
        unsafe { std::slice::from_raw_parts(self.as_ptr().as_ptr(), self.bytes) }
    }
}

impl DerefMut for MappedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and the owner is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.as_ptr().as_ptr(), self.bytes) }
    }
}

impl fmt::Debug for MappedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MappedBytes({:p}, {} bytes)", self.as_ptr(), self.bytes)
    }
}
