//! The storage of linked lists beside naive lists.

use nearpage::CpuId;
use nearpage::platform::{ChosenCpu, SerialStorage, Single, Storage, TryLock};
use nearpage::testing::storage::{check_exclusion, check_storage};

const SEEDS: u64 = 20;
const OPERATIONS: u32 = 100_000;

/// A number from the environment.
fn number(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name}={value}: a number is accepted")))
}

/// Runs the seeds that the environment names, or those of every day.
fn conforms<S: Storage + Default>(test: &str) {
    let seeds = match number("NEARPAGE_SEED") {
        Some(seed) => seed..seed + number("NEARPAGE_SEEDS").unwrap_or(1),
        None => 0..number("NEARPAGE_SEEDS").unwrap_or(SEEDS),
    };
    for seed in seeds {
        if let Err(difference) = check_storage(&S::default(), CpuId(0), seed, OPERATIONS) {
            panic!(
                "{difference}\nagain: NEARPAGE_SEED={seed} cargo test -p nearpage --test storage {test}"
            );
        }
    }
}

#[test]
fn one_thread() {
    conforms::<SerialStorage<Single<ChosenCpu>>>("one_thread");
}

#[test]
fn a_lock_per_cpu() {
    conforms::<SerialStorage<TryLock<ChosenCpu>>>("a_lock_per_cpu");
    check_exclusion(&SerialStorage::<TryLock<ChosenCpu>>::default(), CpuId(0));
}
