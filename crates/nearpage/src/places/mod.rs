//! Places and quotas: the free pages of a zone under nearpage's own rules.
//!
//! *Where* a page is free is one thing: a bit in its pageblock's map ([`map`]), which anybody sets with one OR and takes with
//! one AND. *How many* pages a CPU may take is another: its quota ([`quota`]), claimed from the zone's one counter.
//!
//! ```text
//! zone   maps    a line a pageblock   a bit a page that is free
//!        whole   a bit a pageblock    all 512 are free: then the map is empty, and this bit is the block
//!        some    a bit, by type       pageblocks to look at; a hint
//!        free    one word             pages for which nobody has a quota
//! CPU    lists                        what is allocated and freed without looking at any of that
//!        quota   a word               pages that it may take
//!        place   a pageblock, by type where it takes them
//! ```
//!
//! **Invariant.** Bits in maps + 512 x whole = free + all quotas + what is being moved. A page's bit is set before it is
//! counted, and it is counted off before its bit is taken: so behind each page that a CPU may take there is one.
//!
//! No path waits for another thread, and none takes a lock, but for the reserve for urgent requests and for isolation.

pub mod bitmap;
pub(crate) mod isolation;
pub mod map;
mod pages;
mod pageset;
pub(crate) mod quota;
mod reserve;
pub(crate) mod size;
mod zone;
pub(crate) mod zone_maps;
