//! Real threads on real CPUs: storages beside naive lists, and whole allocators under stress.

mod affinity;
mod broken;
mod canaries;
mod conformance;
mod emulated;
mod pages;
mod shadow;
mod signals;
mod stress;
mod worker;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The seed of the environment (`NEARPAGE_SEED`), if it names one.
fn seed() -> Option<u64> {
    let seed = std::env::var("NEARPAGE_SEED").ok()?;
    Some(seed.parse().expect("NEARPAGE_SEED is a number"))
}

/// One test at a time loads the machine and counts signals.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
