//! The buddy of one zone: free blocks of 2^0 to 2^10 pages, split and merged.
//!
//! **Blocks.** A block of order `o` is 2^o pages whose first PFN is a multiple of 2^o. Its buddy is the
//! block whose PFN differs in bit `o` alone; the two together are the parent. Frames are named by
//! their number, the distance from the zone's start; alignment is always that of the PFN, so that a
//! zone may start anywhere.
//!
//! **Lists.** Free blocks stand on one list per order and [`Migratetype`] (`lists`). The order of a list
//! is that of Linux, block for block: it decides which page comes next, so that whoever compares a
//! run with a recorded kernel compares the lists too. Untouched memory is free and listed without
//! being written (`fresh`).
//!
//! **Taking** (`take`) uses the head of the smallest list that suffices. The lowest part of the block
//! is handed out, the rest goes back as the largest blocks that it makes up, each to the *head* of its
//! list. If the lists of the type have nothing, other types give (`fallback`). Some pageblocks are kept for
//! urgent requests (`reserve`). Pageblocks that are to go offline give nothing (`isolate`).
//!
//! **Freeing** (`free`) merges with the buddy as long as it is free and of the same order. The block
//! goes to the head of its list, or to the tail if the parent's buddy is free as well: then the parent
//! is likely to merge soon, and a block at the tail is handed out last.
//! `mm/page_alloc.c: __free_one_page, expand, __rmqueue_smallest, rmqueue_bulk`, 6.12.
//!
//! Facts and recordings agree: every list after every operation of the recorded experiments on 6.1.192
//! and 6.12.95 comes out the same here, block for block.
//!
//! What is done is counted (`operations`). Whoever calls holds the lock of the zone. Nothing here allocates memory, waits, or knows a host.
//! Not here: watermarks, counters by event, pagesets (they stand above), and compaction.

mod check;
mod fallback;
mod free;
mod fresh;
mod isolate;
mod lists;
mod online;
mod operations;
mod reserve;
mod rules;
mod state;
mod take;
#[cfg(test)]
mod tests;
mod trim;

pub use check::BuddyError;
pub use isolate::Isolated;
pub use reserve::Force;
pub use rules::{FallbackModel, FallbackRules, HeldMovable};
pub use state::{BlockRequest, Buddy, Fragmentation, Insertion};
pub use take::Search;
