//! What a kernel or a run came to as a whole, and what that costs.

use std::collections::BTreeMap;

use serde::Serialize;

/// What a kernel or a run came to as a whole.
///
/// Refills and drains are counted as a kernel's log tells them: a run of its lines is one, however often the lock of the
/// zone was taken for it.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Totals {
    /// Times that a zone's lock was taken to move pages, and writes to words that all CPUs share under rules that need no lock;
    /// `None` for a kernel, whose log does not tell.
    pub lock_acquisitions: Option<u64>,
    /// Most pages that moved in one hold; `None` for a kernel.
    pub most_pages_per_hold: Option<u64>,
    /// Trips of pagesets to their zones for pages.
    pub refills: u64,
    /// Pages of those.
    pub refill_pages: u64,
    /// Trips of pagesets to their zones with pages.
    pub drains: u64,
    /// Pages of those.
    pub drain_pages: u64,
    /// Pages of the longest of all these trips.
    pub longest_run_pages: u64,
    /// Pages handed out, by the id of the node that gave them.
    pub pages_by_node: BTreeMap<u32, u64>,
    /// Pages from another zone than the preferred one, by the name of the reason; empty for a kernel.
    pub pages_by_reason: BTreeMap<&'static str, u64>,
    /// Bytes in pagesets at the end.
    pub cached_bytes: u64,
    /// Pages from another node than the CPU's.
    pub remote_pages: u64,
    /// Pages in all pagesets, the mean over time; `None` for a kernel, as the next five.
    pub kept_pages_mean: Option<f64>,
    /// The most of them after any request.
    pub kept_pages_most: Option<u64>,
    /// The most in the pagesets of one CPU.
    pub kept_pages_most_of_cpu: Option<u64>,
    /// How many they were at the end.
    pub kept_pages_end: Option<u64>,
    /// The longest that any hold took, in nanoseconds of model time by [`Costs::BENCH`].
    pub longest_hold_ns: Option<f64>,
    /// CPUs with pagesets.
    pub cpus: Option<u64>,
    /// Model time in milliseconds by [`Costs::BENCH`]; `None` for a kernel.
    pub model_ms: Option<f64>,
}

/// What operations cost, in nanoseconds: a table with a name.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub struct Costs {
    /// Its name.
    pub name: &'static str,
    /// A block allocated or freed.
    pub operation_ns: f64,
    /// A zone's lock taken and given back.
    pub hold_ns: f64,
    /// A page taken from a zone in a hold.
    pub refill_page_ns: f64,
    /// A page given to a zone in a hold.
    pub drain_page_ns: f64,
}

impl Costs {
    /// From the recorded run of the benchmark `peers`, `bench/pages.txt`: half a hot pair; a locked pair more than a hot
    /// one; filling and freeing in order, per page, less the operation.
    pub const BENCH: Costs = Costs {
        name: "bench/pages.txt",
        operation_ns: 2.7,
        hold_ns: 33.2,
        refill_page_ns: 0.7,
        drain_page_ns: 2.7,
    };

    /// The longer one, in nanoseconds, of a hold that took so many pages from a zone, and one that returned so many.
    pub(crate) fn longest_hold(&self, taken: u64, returned: u64) -> f64 {
        let pages = taken as f64 * self.refill_page_ns;
        self.hold_ns + pages.max(returned as f64 * self.drain_page_ns)
    }

    /// Model time of `operations` blocks allocated and freed with these totals, in milliseconds, if one CPU did it all.
    /// Waiting is not in it.
    pub fn milliseconds(&self, operations: u64, totals: &Totals) -> f64 {
        let ns = operations as f64 * self.operation_ns
            + totals.lock_acquisitions.unwrap_or(0) as f64 * self.hold_ns
            + totals.refill_pages as f64 * self.refill_page_ns
            + totals.drain_pages as f64 * self.drain_page_ns;
        ns / 1e6
    }
}
