//! Bytes that are more than a block can have: mappings of their own.

use std::collections::BTreeMap;
use std::ptr::NonNull;

use nearpage::{LimitOf, NodeId};
use nearpage_linux::internals::{AtForks, physical_bytes};
use nearpage_linux::{FRAME_BYTES, MappedBytes, Memory, MemoryError};

use crate::error::Failure;

/// The most bytes, and the largest alignment, that size classes have: a block of order 10.
pub(crate) const BLOCK_BYTES_MAX: usize = 4 << 20;

/// The mappings of a memory, by their first address.
#[derive(Debug)]
pub(crate) struct LargeBytes(AtForks<BTreeMap<usize, Large>>);

#[derive(Debug)]
struct Large {
    mapped: MappedBytes,
    node: Option<NodeId>,
}

impl LargeBytes {
    pub fn new() -> Self {
        Self(AtForks::new(BTreeMap::new()))
    }

    /// Maps bytes that are zero.
    pub fn alloc(
        &self,
        memory: &Memory,
        bytes: usize,
        align: usize,
        node: Option<NodeId>,
    ) -> Result<NonNull<u8>, Failure> {
        if !align.max(1).is_power_of_two() {
            return Err(Failure::invalid(format!(
                "an alignment of {align}: powers of two are accepted"
            )));
        }
        let no_memory = |why: String| Failure::new(libc::ENOMEM, format!("{bytes} bytes: {why}"));
        let machine = physical_bytes();
        if bytes as u64 > machine {
            return Err(no_memory(format!("the machine has {machine}")));
        }
        let mapped = memory.map_bytes(bytes, align.max(1), node).map_err(|error| match error {
            MemoryError::UnknownNode { .. } => Failure::invalid(error),
            error => no_memory(error.to_string()),
        })?;
        let start = mapped.as_ptr();
        let mut all = self.0.lock();
        for of in [Some(LimitOf::Allocator), node.map(LimitOf::Node)].into_iter().flatten() {
            let beside = bytes_of(&all, of);
            if let Some((in_use, hard)) = refused_by(memory, of, beside, bytes as u64) {
                return Err(no_memory(format!(
                    "{in_use} of the {hard} of the hard limit of {of} are in use"
                )));
            }
        }
        all.insert(start.as_ptr().addr(), Large { mapped, node });
        Ok(start)
    }

    /// Ends a mapping; returns whether there was one.
    pub fn free(&self, start: *const u8) -> bool {
        let mapping = self.0.lock().remove(&start.addr());
        mapping.is_some()
    }

    /// Bytes of the mapping that begins at an address.
    pub fn usable(&self, start: *const u8) -> Option<usize> {
        self.0.lock().get(&start.addr()).map(|large| large.mapped.len())
    }

    /// The node of the mapping that an address lies in, if it was made for one.
    pub fn node_of(&self, address: usize) -> Option<NodeId> {
        let all = self.0.lock();
        let (start, large) = all.range(..=address).next_back()?;
        large.node.filter(|_| address - start < large.mapped.len())
    }

    /// Bytes of all mappings, or of those that were made for a node.
    pub fn bytes(&self, of: LimitOf) -> u64 {
        bytes_of(&self.0.lock(), of)
    }
}

/// What is in use and the hard limit, if that limit refuses so many bytes. In use are the memory's pages and `beside`.
pub(crate) fn refused_by(
    memory: &Memory,
    of: LimitOf,
    beside: u64,
    bytes: u64,
) -> Option<(u64, u64)> {
    let hard = memory.limits(of).ok()?.hard_bytes?;
    let pages = memory.in_use(of).unwrap_or_default().0 * FRAME_BYTES;
    let in_use = pages.saturating_add(beside);
    (in_use.saturating_add(bytes) > hard).then_some((in_use, hard))
}

fn bytes_of(all: &BTreeMap<usize, Large>, of: LimitOf) -> u64 {
    let is_of = |large: &&Large| match of {
        LimitOf::Allocator => true,
        LimitOf::Node(node) => large.node == Some(node),
    };
    all.values().filter(is_of).map(|large| large.mapped.len() as u64).sum()
}
