//! Memories on this machine: what a user of one sees.

mod affinity;
mod alone;
mod bad_input;
mod cgroup;
mod child_threads;
mod fork;
mod fork_load;
mod hotplug;
mod instances;
mod owned;
mod page_locks;
mod panicking_word;
mod reclaim;
mod reserve;
mod residency;
mod sandbox;
