//! What the slab layer refuses, and why.

use core::fmt;

use nearpage::{Address, BuildError, Gfp};

use crate::tag::CACHES_MAX;

/// Why a free of an object was refused. The object stays where it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ObjectError {
    /// No slab has this address.
    NotOfSlab {
        /// The address.
        address: Address,
    },
    /// The address is of a slab of another cache.
    WrongCache {
        /// The address.
        address: Address,
        /// The cache that it was given to.
        given: &'static str,
        /// The cache that it is of.
        owner: &'static str,
    },
    /// The address is inside an object, or between objects. Of objects whose size is a power of two that is
    /// found at the free; of others at the free if the host is
    /// [`HARDENED`](nearpage::platform::Platform::HARDENED), else when the object goes back to its slab.
    NotAnObject {
        /// The address.
        address: Address,
        /// The cache.
        cache: &'static str,
    },
    /// The object is free already. Found at the free if the host is hardened, else when the second one goes back
    /// to its slab.
    NotAllocated {
        /// The address.
        address: Address,
        /// The cache.
        cache: &'static str,
    },
}

impl fmt::Display for ObjectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NotOfSlab { address } => {
                write!(f, "free of the object at {address}: no slab has this address")
            }
            Self::WrongCache { address, given, owner } => write!(
                f,
                "free of the object at {address} to cache {given}: it is of cache {owner}; the object stays \
                 allocated"
            ),
            Self::NotAnObject { address, cache } => write!(
                f,
                "free of the object at {address}: no object of cache {cache} begins there"
            ),
            Self::NotAllocated { address, cache } => write!(
                f,
                "free of the object at {address} of cache {cache}: it is free already (double free)"
            ),
        }
    }
}

impl core::error::Error for ObjectError {}

/// Why a slab allocator could not be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SlabBuildError {
    /// No allocator can be made for the topology, or a buffer is too small.
    Pages(BuildError),
    /// The page allocator has a slab allocator already, or had one: objects of two could not be told apart.
    SecondSlab,
    /// The page allocator was made without notes ([`Config::without_notes`](nearpage::Config::without_notes)).
    WithoutNotes,
    /// More places for caches were asked for than there are numbers for caches.
    TooManyCaches {
        /// Places asked for.
        caches_max: usize,
    },
}

impl fmt::Display for SlabBuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pages(error) => error.fmt(f),
            Self::SecondSlab => {
                f.write_str("the page allocator has, or had, a slab allocator; it can have one")
            }
            Self::WithoutNotes => f.write_str(
                "the page allocator was made without notes; one made with them is accepted",
            ),
            Self::TooManyCaches { caches_max } => {
                write!(f, "{caches_max} places for caches; 1 to {CACHES_MAX} are accepted")
            }
        }
    }
}

impl core::error::Error for SlabBuildError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Pages(error) => error.source(),
            _ => None,
        }
    }
}

impl From<BuildError> for SlabBuildError {
    fn from(error: BuildError) -> Self {
        Self::Pages(error)
    }
}

/// Why a cache could not be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum CreateError {
    /// A name that `slabinfo` cannot show as one word: none at all, or with white space or control characters, or one that
    /// begins as its comments do.
    BadName {
        /// The name.
        cache: &'static str,
    },
    /// A cache of this name is there already.
    NameTaken {
        /// The cache.
        cache: &'static str,
    },
    /// Flags that pages of a cache cannot have: `__GFP_ZERO` and `__GFP_THISNODE` are those of a request, nobody can
    /// move a slab, and no pages are of two zones.
    Flags {
        /// The cache.
        cache: &'static str,
        /// Those of the flags.
        gfp: Gfp,
    },
    /// Objects of no bytes.
    ZeroSize {
        /// The cache.
        cache: &'static str,
    },
    /// An object is larger than the largest block of pages, with its alignment.
    TooLarge {
        /// The cache.
        cache: &'static str,
        /// Bytes of an object.
        size: u64,
        /// The alignment asked for.
        align: u64,
        /// The most that is possible.
        size_max: u64,
    },
    /// An alignment that is not a power of two.
    Alignment {
        /// The cache.
        cache: &'static str,
        /// The alignment asked for.
        align: u64,
    },
    /// All places for caches are in use.
    TooManyCaches {
        /// The cache.
        cache: &'static str,
        /// How many there are.
        caches_max: usize,
    },
}

impl fmt::Display for CreateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::BadName { cache } => write!(
                f,
                "cache {cache:?}: a name is one word, without white space and control characters, and does not begin with #"
            ),
            Self::NameTaken { cache } => write!(
                f,
                "cache {cache}: there is a cache of this name already; each needs a name of its own"
            ),
            Self::Flags { cache, gfp } => write!(
                f,
                "cache {cache}: flags {gfp} for all of its pages; possible are one of __GFP_DMA and __GFP_DMA32, \
                 and those of reclaim and urgency"
            ),
            Self::ZeroSize { cache } => {
                write!(f, "cache {cache}: objects of 0 bytes; 1 byte is the least")
            }
            Self::TooLarge { cache, size, align, size_max } => write!(
                f,
                "cache {cache}: objects of {size} bytes aligned to {align}; at most {size_max} bytes are \
                 possible, alignment included"
            ),
            Self::Alignment { cache, align } => {
                write!(f, "cache {cache}: alignment {align} is not a power of two")
            }
            Self::TooManyCaches { cache, caches_max } => write!(
                f,
                "cache {cache}: all {caches_max} places for caches are in use; the allocator was made with so many"
            ),
        }
    }
}

impl core::error::Error for CreateError {}

/// A cache still has objects in somebody's hands, or pages that somebody has locked; it was not destroyed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LiveObjects {
    /// The cache.
    pub cache: &'static str,
    /// Objects in somebody's hands, or in stacks of a CPU that could not be stopped.
    pub objects: u64,
    /// Slabs that they lie in; if there are none, slabs whose pages are locked.
    pub slabs: u64,
}

impl fmt::Display for LiveObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cache, objects, slabs } = self;
        if *objects == 0 {
            return write!(f, "cache {cache} is not destroyed: {slabs} of its slabs are locked");
        }
        write!(
            f,
            "cache {cache} is not destroyed: {objects} of its objects in {slabs} slabs are not free"
        )
    }
}

impl core::error::Error for LiveObjects {}
