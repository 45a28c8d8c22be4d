//! The conformance suite that every `Platform` must pass, on this kernel's.

use core::sync::atomic::{AtomicU32, Ordering};

use nearpage::CpuId;
use nearpage::platform::Platform as _;
use nearpage::testing::storage::{check_exclusion, check_storage};
use nearpage_kernel::{Pages, TicketLock};

use crate::mine::Mine;
use crate::options::Options;
use crate::{arch, cpus, interrupt, log};

const SEEDS: u64 = 2;
const OPERATIONS: u32 = 4000;

pub fn run(pages: &Pages<'_, Mine>, options: Options) {
    holders_are_left_alone();
    counts();
    let storage = pages.platform().storage();
    let cpu = arch::cpu_number();
    for seed in options.seed..options.seed + SEEDS {
        if let Err(difference) = check_storage(storage, cpu, seed, OPERATIONS) {
            panic!("conformance, seed {seed}: {difference}");
        }
    }
    check_exclusion(storage, cpu);
    log!("conformance: {} operations beside the naive lists", SEEDS * u64::from(OPERATIONS));
}

/// No two CPUs have one number.
pub fn distinct() {
    static SEEN: [AtomicU32; 64] = [const { AtomicU32::new(0) }; 64];
    cpus::on_all(|_| _ = SEEN[arch::cpu_number().0 as usize].fetch_add(1, Ordering::Relaxed));
    for number in 0..cpus::running() {
        let seen = SEEN[number as usize].load(Ordering::Relaxed);
        assert_eq!(
            seen,
            1,
            "CPUs that are {}: two share its storage, or nobody has it",
            CpuId(number)
        );
    }
}

/// Who holds a lock is not interrupted, though timers interrupt the CPU all the time with a handler that wants the lock.
fn holders_are_left_alone() {
    const PERIODS: u64 = 5;
    interrupt::WANTS.store(true, Ordering::Relaxed);
    let held = interrupt::WANTED.lock();
    let before = *held;
    let end = arch::now_ns() + PERIODS * u64::from(interrupt::timer_ns());
    while arch::now_ns() < end {
        arch::pause();
    }
    assert_eq!(*held, before, "nobody else comes in");
    drop(held);
    while *interrupt::WANTED.lock() == before {
        arch::pause();
    }
    interrupt::WANTS.store(false, Ordering::Relaxed);
}

/// A lock lets one at a time in, while timers interrupt.
fn counts() {
    const EACH: u64 = 2000;
    static COUNT: TicketLock<Mine, u64> = TicketLock::new(0);
    cpus::on_all(|_| {
        for _ in 0..EACH {
            *COUNT.lock() += 1;
        }
    });
    assert_eq!(*COUNT.lock(), EACH * u64::from(cpus::running()), "no count is lost");
}
