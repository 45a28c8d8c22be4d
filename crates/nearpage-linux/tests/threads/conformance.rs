//! The storages of this host beside naive lists, on real CPUs: undisturbed, and with signals and other
//! threads that abort their sequences.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::{affinity, alone, seed, signals};
use nearpage::platform::{Pop, Push, Storage};
use nearpage::rules::pagesets::list_order;
use nearpage::testing::naive_list::{Answer, Operation};
use nearpage::testing::sections::Sections;
use nearpage::testing::storage::{Coverage, Lists, check_exclusion, check_storage, rings};
use nearpage::{CpuId, Pfn, ZoneIndex};
use nearpage_linux::internals::{LockedStorage, RingStorage};

const SEEDS: u64 = 24;
const OPERATIONS: u32 = 100_000;

/// Runs one seed, of the environment if it names one, or many, on each CPU in turn; returns what was reached.
fn conforms<S: Storage + Sync>(storage: &S, test: &str) -> Vec<Coverage> {
    let seeds = seed().map_or(0..SEEDS, |seed| seed..seed + 1);
    let cpus = affinity::allowed_cpus().into_iter().cycle();
    let run = |(seed, cpu): (u64, CpuId)| {
        let checked = || check_storage(storage, cpu, seed, OPERATIONS);
        affinity::on_cpu(cpu, checked).unwrap_or_else(|difference| {
            panic!(
                "{difference}\nagain: NEARPAGE_SEED={seed} cargo test -p nearpage-linux --test threads {test}"
            )
        })
    };
    seeds.zip(cpus).map(run).collect()
}

/// Rings, or the reason why there are none.
fn ring_storage() -> Option<RingStorage> {
    RingStorage::new().inspect_err(|why| println!("skipped: {why}")).ok()
}

#[test]
fn rings_conform() {
    let Some(storage) = ring_storage() else { return };
    let reached = conforms(&storage, "rings_conform");
    if seed().is_none() {
        // Positions are compared in 16 bits: both ends must have gone round, either way.
        assert!(reached.iter().any(|reached| reached.lowest < -2 * 65_536), "{reached:?}");
        assert!(reached.iter().any(|reached| reached.highest > 2 * 65_536), "{reached:?}");
        assert!(reached.iter().any(|reached| reached.full > 1000), "{reached:?}");
        assert!(reached.iter().any(|reached| reached.empty > 1000), "{reached:?}");
    }
}

#[test]
fn locked_lists_conform() {
    conforms(&LockedStorage::default(), "locked_lists_conform");
}

/// On each CPU a second thread wants to run, and all threads of this test get signals.
#[test]
fn rings_conform_with_aborts() {
    let Some(storage) = ring_storage() else { return };
    let _alone = alone();
    let cpus = affinity::allowed_cpus();
    let done = AtomicBool::new(false);
    let before = signals::counts();
    let conforms = thread::scope(|scope| {
        for cpu in &cpus {
            scope.spawn(|| {
                affinity::restrict(0, &[*cpu]);
                while !done.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        // Chance decides which signals meet a sequence, so go on until enough have.
        let enough = || signals::counts().1 - before.1 >= 100;
        let mut seeds = (0..500).zip(cpus.iter().cycle()).take_while(|_| !enough());
        let conforms = seeds.try_for_each(|(seed, &cpu)| {
            let checked = || check_storage(&storage, cpu, seed, OPERATIONS).map(drop);
            affinity::on_cpu(cpu, || under_signals(&cpus, checked))
        });
        done.store(true, Ordering::Relaxed);
        conforms
    });
    if let Err(difference) = conforms {
        panic!("{difference}");
    }
    let after = signals::counts();
    let (signals, aborts) = (after.0 - before.0, after.1 - before.1);

    assert!(aborts > 0, "none of {signals} signals met a sequence");
}

/// Sends signals to the calling thread, from any CPU, while `work` runs.
fn under_signals<R>(cpus: &[CpuId], work: impl FnOnce() -> R) -> R {
    let (done, me) = (AtomicBool::new(false), [signals::this_thread()]);
    thread::scope(|scope| {
        scope.spawn(|| {
            affinity::restrict(0, cpus);
            // SAFETY: the scope ends after the sender, and this thread after the scope.
            unsafe { signals::send_until(&done, &me) }
        });
        let result = work();
        done.store(true, Ordering::Relaxed);
        result
    })
}

#[test]
fn nobody_uses_stopped_lists() {
    for cpu in affinity::allowed_cpus() {
        affinity::on_cpu(cpu, || {
            check_exclusion(&LockedStorage::default(), cpu);
            if let Some(storage) = ring_storage() {
                check_exclusion(&storage, cpu);
            }
        });
    }
}

#[test]
fn rings_of_another_cpu_are_left_alone() {
    let Some(storage) = ring_storage() else { return };
    let here = affinity::allowed_cpus()[0];
    // A CPU that this machine may or may not have: nothing asks.
    for there in [CpuId(here.0 + 1), CpuId(70_000)] {
        let rings = rings::<RingStorage>(8);
        let sections = Sections::new(1, |_| false);
        let table = sections.table();
        let frames = table.frames(Pfn(0), ZoneIndex(0));
        let lists = Lists::new(&storage, there, &rings, frames);
        let answers = |index| {
            use Operation::{AppendRun, Pop, PopBatch, PopCold, Push, PushBatch};
            let run = 1 << list_order(index).0;
            let all =
                [Pop, Push(7), PopBatch(3), PushBatch(vec![7]), AppendRun(run, 2), PopCold(3)];
            all.map(|operation| lists.apply(index, &operation))
        };
        let expected = [
            Answer::Popped(Pop::MOVED),
            Answer::Pushed(Push::MOVED),
            Answer::Taken(vec![]),
            Answer::Number(0),
            Answer::Number(0),
            Answer::Taken(vec![]),
        ];
        affinity::on_cpu(here, || assert_eq!(answers(5), expected));
        // A CPU that runs nothing can be drained.
        assert_eq!(lists.apply(5, &Operation::Drain), Answer::Taken(vec![]));
    }
}
