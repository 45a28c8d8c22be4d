//! What the frames of a slab say: which cache and which node they belong to, and where the slab begins.
//!
//! They stand in the notes beside the pages of a slab ([`PageNote`]). So the way from an address to its cache is one load,
//! and that word says at once whether an object is of this cache and this node.

use nearpage::NodeIndex;
use nearpage::internals::PageNote;

/// The owner of a frame of a slab.
///
/// ```text
/// bit 31 one  15-30 node  0-14 cache
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub struct Tag(pub u32);

const SLAB: u32 = 1 << 31;
const NODE_SHIFT: u32 = 15;
const CACHE_MASK: u32 = (1 << NODE_SHIFT) - 1;

/// Places for caches at most. The last number is not used, so that no tag is the end of a list of free pages.
pub const CACHES_MAX: usize = CACHE_MASK as usize;

impl Tag {
    /// A tag that no frame of a slab has.
    pub const NONE: Tag = Tag(0);

    /// A tag that no frame has, whatever its page is for: the cache has the number that is not used. What stacks say of CPUs
    /// that there are not; [`NONE`](Self::NONE) may be a link on a list of free pages.
    pub const NOBODY: Tag = Tag(SLAB | CACHE_MASK);

    /// The tag of slabs of a cache on a node.
    #[inline(always)]
    pub const fn new(cache: u16, node: NodeIndex) -> Tag {
        Tag(SLAB | (node.0 as u32) << NODE_SHIFT | cache as u32 & CACHE_MASK)
    }

    /// What a note says. That of a page that is not allocated may be a link that looks like a tag, in zones of more than
    /// 8 TiB.
    #[inline(always)]
    pub fn of(note: PageNote<'_>) -> Tag {
        Tag(note.tag())
    }

    /// Whether it is one.
    #[inline(always)]
    pub const fn is_slab(self) -> bool {
        self.0 & SLAB != 0 && self.0 != u32::MAX
    }

    /// The cache.
    #[inline(always)]
    pub const fn cache(self) -> u16 {
        (self.0 & CACHE_MASK) as u16
    }

    /// The node.
    #[inline(always)]
    pub const fn node(self) -> NodeIndex {
        NodeIndex((self.0 >> NODE_SHIFT) as u16)
    }
}

/// What a frame says of its slab.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owner {
    /// Cache and node.
    pub tag: Tag,
    /// The first frame of the slab.
    pub slab: u32,
}

/// Whose a page is, if it is of a slab that stays.
#[inline]
pub fn owner_in(note: PageNote<'_>) -> Option<Owner> {
    let (tag, slab) = note.read()?;
    let tag = Tag(tag);
    tag.is_slab().then_some(Owner { tag, slab })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_keep_cache_and_node() {
        for cache in [0, 1, 31, CACHES_MAX as u16 - 1] {
            for node in [0, 1, 255, u16::MAX].map(NodeIndex) {
                let tag = Tag::new(cache, node);
                assert_eq!((tag.is_slab(), tag.cache(), tag.node()), (true, cache, node));
            }
        }
        assert!(!Tag::NONE.is_slab() && !Tag(u32::MAX).is_slab());
        // A frame number on a list.
        assert!(!Tag(0x7fff_ffff).is_slab());
    }
}
