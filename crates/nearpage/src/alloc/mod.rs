//! The entry: allocate and free.
//!
//! In call order: [`fast`] is the whole life of a page while its CPU's pageset has pages and
//! the zone has room; [`refill`] and [`drain`] move pages between a pageset and its zone, [`quotas`] does under nearpage's own rules, [`taken`] counts who takes another CPU's; [`scan`] walks
//! the zonelist, with the [`hints`] of its cache; [`placed`] is what has a policy or a cpuset; [`slow`] is the
//! ladder when nothing was found, of which [`stalls`] counts the steps, [`balance`] what reclaim and it agree on; [`bulk`] is many pages at once;
//! [`reasons`] counts why pages came from elsewhere, [`report`] tells why a request failed; [`waiters`] is what pages know of page locks; [`hold`] keeps settings
//! still from outside; [`build`] makes all of it out of the caller's memory; [`settings`] keeps watermarks and
//! zonelists, [`limits`] how much may be in use; memory comes and goes by [`online`] and [`offline`], CPUs by [`cpus`],
//! and [`plugged`] counts it.
//!
//! Locks: a CPU's pagesets before a zone's lock; the lock of [`settings`] before zone locks. No two zone
//! locks are held at once.

mod allocator;
mod arrange;
mod balance;
mod build;
mod build_error;
mod bulk;
mod bulk_free;
mod cached;
mod carve;
mod config;
mod contiguous;
mod cpus;
mod drain;
mod fallbacks;
mod fast;
mod free;
mod hints;
mod hold;
mod lend;
mod limits;
mod near;
mod notes;
mod offline;
mod online;
mod online_map;
mod owned;
mod pageblocks;
mod parts;
mod placed;
mod plan;
mod plugged;
mod quotas;
mod reasons;
mod refill;
mod report;
mod request;
mod scan;
mod settings;
mod slow;
mod stalls;
mod state;
mod taken;
mod waiters;
mod walk;
mod wanted;

pub use crate::reason::{Fallbacks, Reason};
pub use allocator::{NodeAccess, PageAllocator};
pub use balance::ReclaimPass;
pub use build::metadata_size;
pub use build_error::BuildError;
pub use bulk_free::BulkFreeError;
pub use carve::Carver;
pub use config::Config;
pub use cpus::CpuError;
pub use drain::DrainBusy;
pub use hints::ScanCounts;
pub use hold::{CpuPagesets, Stillness, StoppedPagesets, ZoneHold};
pub use lend::{Lending, LentPages};
pub use limits::Limits;
pub use notes::PageNote;
pub use plan::Plan;
pub use plugged::HotplugCounts;
pub use report::AllocReport;
pub use request::Request;
pub use stalls::StallCounts;
pub use waiters::NoLock;
