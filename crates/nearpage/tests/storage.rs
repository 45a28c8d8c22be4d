//! The storage of linked lists beside naive lists.

use nearpage::CpuId;
use nearpage::platform::{ChosenCpu, SerialStorage, Single, Storage, TryLock};
use nearpage::testing::storage::{check_exclusion, check_storage};

const SEEDS: u64 = 20;
const OPERATIONS: u32 = 100_000;

/// Runs one seed, of the environment if it names one, or many.
fn conforms<S: Storage + Default>(test: &str) {
    let seeds = match std::env::var("NEARPAGE_SEED") {
        Ok(seed) => seed.parse().map(|seed| seed..seed + 1).expect("NEARPAGE_SEED is a number"),
        Err(_) => 0..SEEDS,
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
