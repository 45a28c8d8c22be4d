//! Experiments done again with the core, one a kind.

pub mod buddy;
pub mod bulk;
pub mod counter;
pub mod hold;
pub mod lists;
pub mod low;
pub mod near;
pub mod pageset;
pub mod pcp;
pub mod rebuild;
pub mod spill;
pub mod steal;
pub mod steal2;
pub mod target;

use nearpage::Gfp;

/// What the module asks for of its zone under test: pages of users, on this node only, and nobody reclaims.
const HERE: Gfp = Gfp::HIGHUSER_MOVABLE
    .difference(Gfp::KERNEL)
    .union(Gfp::THISNODE)
    .union(Gfp::NORETRY)
    .union(Gfp::NOWARN);

/// Why a recording may have more than one start.
const LARGE_BLOCKS: &str = "what the zone had in large blocks at the start is not recorded";
