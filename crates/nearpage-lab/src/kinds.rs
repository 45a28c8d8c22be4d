//! The kinds of work: each file runs one and makes its report.

mod contention;
mod hog;
mod homes;
mod huge;
mod lifetimes;
mod locks;
mod messages;
mod patched;
mod requests;
mod slab;

use crate::kind::Kind;
use crate::scenario::Workload;

/// The kind of a scenario's work.
pub(crate) fn of(workload: &Workload) -> &dyn Kind {
    match workload {
        Workload::MemoryHog(work) => work,
        Workload::Patched(work) => work,
        Workload::SlabMessages(work) => work,
        Workload::PageLocks(work) => work,
        Workload::HugeThenSingle(work) => work,
    }
}
