//! The platform on the conformance suite, and at work on several CPUs with interrupts.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use nearpage::testing::random::Random;
use nearpage::testing::storage::{check_exclusion, check_storage};
use nearpage::{
    BuildError, CpuId, FreeError, Gfp, Model, Order, PageblockOwners, Pfn, PfnRange, Request,
};
use nearpage_kernel::{
    ByLinks, ByRings, ByTryLock, Interrupts, Kernel, LockFault, Pages, TicketLock,
};
use nearpage_slab::ObjectStorage;

use crate::machine::{
    INTERRUPTS, MISUSES, NODE_PAGES, Played, PlayedByAny, PlayedByLinux, alone, boot, boot_by,
    interrupt_by, no_interrupts, run_on,
};

const SEEDS: u64 = 5;
const OPERATIONS: u32 = 50_000;

fn conforms<S: ObjectStorage + Default>() {
    run_on(0);
    let storage = S::default();
    for seed in 0..SEEDS {
        if let Err(difference) = check_storage(&storage, CpuId(0), seed, OPERATIONS) {
            panic!("seed {seed}: {difference}");
        }
    }
    check_exclusion(&storage, CpuId(0));
}

#[test]
fn all_storages_conform() {
    let _machine = alone();
    conforms::<ByRings<Played>>();
    conforms::<ByLinks<Played>>();
    conforms::<ByTryLock<Played>>();
}

/// Blocks on their way to CPUs that free them.
type Mail = Mutex<VecDeque<(Pfn, Order)>>;

fn work<K: Kernel, S: ObjectStorage>(pages: &Pages<'_, K, S>, mail: &Mail, cpu: u32, seed: u64) {
    let mut random = Random(seed ^ u64::from(cpu) << 32);
    let mut mine = Vec::new();
    for _ in 0..4000 {
        match random.below(4) {
            0 | 1 => {
                let order = Order(random.below(6) as u8);
                let gfp =
                    [Gfp::KERNEL, Gfp::HIGHUSER_MOVABLE, Gfp::ATOMIC][random.below(3) as usize];
                if let Ok(block) = pages.alloc(Request::new(order, gfp)) {
                    mine.push((block, order));
                }
            }
            2 => {
                let (mut locked, at) = (mail.lock().expect("nobody panicked"), random.below(64));
                if let Some(block) = mine.pop() {
                    locked.push_back(block);
                }
                if at < 40
                    && let Some((block, order)) = locked.pop_front()
                {
                    drop(locked);
                    pages.free(block, order).expect("it was sent to be freed");
                }
            }
            _ => {
                if let Some((block, order)) = mine.pop() {
                    pages.free(block, order).expect("it is this CPU's");
                }
            }
        }
    }
    let mut locked = mail.lock().expect("nobody panicked");
    locked.extend(mine);
}

fn stress<S: ObjectStorage + Default + Sync + 'static>() {
    stress_on(boot::<S>());
}

fn stress_on<K: Kernel, S: ObjectStorage + Sync + 'static>(pages: &'static Pages<'static, K, S>) {
    let before = INTERRUPTS.load(Ordering::Relaxed);
    let (mail, seed) = (Mail::default(), 0x22);
    println!("seed {seed:#x}");
    std::thread::scope(|threads| {
        for cpu in 0..5 {
            let mail = &mail;
            threads.spawn(move || {
                run_on(cpu);
                let mut held = VecDeque::new();
                interrupt_by(move || {
                    if let Ok(page) = pages.alloc(Request::new(Order(0), Gfp::ATOMIC)) {
                        held.push_back(page);
                    }
                    if held.len() > 8 {
                        let page = held.pop_front().expect("there are more than 8");
                        pages.free(page, Order(0)).expect("it is this handler's");
                    }
                });
                work(pages, mail, cpu, seed);
                no_interrupts();
            });
        }
    });
    let interrupts = INTERRUPTS.load(Ordering::Relaxed) - before;
    assert!(interrupts > 100, "{interrupts} interrupts came");
    for (block, order) in mail.into_inner().expect("nobody panicked") {
        pages.free(block, order).expect("it is nobody else's");
    }
    pages.drain_all().expect("nobody is at the pagesets");
    let checked = pages.check().expect("every frame is in one place");
    // What each handler held at its end.
    assert!(checked.allocated.0 <= 5 * 9, "{checked:?}");
}

#[test]
fn all_cpus_with_interrupts() {
    let _machine = alone();
    stress::<ByRings<Played>>();
}

/// The same with lists that are linked through the frames.
#[test]
fn all_cpus_by_links() {
    let _machine = alone();
    stress::<ByLinks<Played>>();
}

/// Handlers that find the pagesets taken go to the zone.
#[test]
fn all_cpus_by_try_lock() {
    let _machine = alone();
    stress::<ByTryLock<Played>>();
}

/// What a kernel knows of its rules when it is compiled is all that it can do; one that knows nothing can do all.
#[test]
fn kernels_are_compiled_for_their_rules() {
    let _machine = alone();
    let by = [Model::NEARPAGE, Model::LINUX_6_18, Model::RFC_2026_OWNED];
    for model in by {
        let is_ours = model.owners == PageblockOwners::Quotas;
        let error = BuildError::OtherRules { asked: model.owners };
        let booted = boot_by::<Played, ByRings<Played>>(model);
        assert_eq!(booted.err(), (!is_ours).then_some(error));
        // Lists that are linked: others have no pieces.
        match boot_by::<PlayedByLinux, ByLinks<PlayedByLinux>>(model) {
            Ok(pages) => stress_on(pages),
            Err(refused) => assert!(is_ours && refused == error),
        }
        stress_on(boot_by::<PlayedByAny, ByLinks<PlayedByAny>>(model).expect("it can do all"));
    }
    let error =
        boot_by::<Played, ByRings<Played>>(Model::LINUX_6_12).map(|_| ()).expect_err("it is");
    assert!(
        error
            .to_string()
            .contains("Nobody for owners of pageblocks; this host was compiled for other rules")
    );
}

/// Frees of what was never managed, is not online, or is free already, by handlers that interrupt whatever their CPU does: each is
/// refused and told, and nothing changes.
#[test]
fn wrong_frees_from_interrupts() {
    let _machine = alone();
    let pages = boot::<ByRings<Played>>();
    let before = MISUSES.load(Ordering::Relaxed);
    let freed = pages.alloc(Request::new(Order(0), Gfp::KERNEL)).expect("there is memory");
    pages.free(freed, Order(0)).expect("it is ours");
    let wrong = [Pfn(NODE_PAGES), Pfn(NODE_PAGES + 77), Pfn(1 << 40), Pfn(u64::MAX >> 12), freed];
    let mail = Mail::default();
    std::thread::scope(|threads| {
        threads.spawn(|| {
            run_on(1);
            let mut turn = 0;
            interrupt_by(move || {
                let page = wrong[turn % wrong.len()];
                // What is free may be somebody's again, but nobody has a block of this order.
                let order = if page == freed { Order(10) } else { Order(turn as u8 % 12) };
                let error = pages.free(page, order).expect_err("nobody has such a block");
                let far = page.0 >= 1 << 40 && order == Order(0);
                assert!(!far || matches!(error, FreeError::Foreign { .. }), "{error}");
                if page != freed {
                    let range = PfnRange::new(page.0, page.0 + 2);
                    pages.free_range(range).expect_err("it was never managed");
                }
                turn += 1;
            });
            work(pages, &mail, 1, 0x77);
            no_interrupts();
        });
    });
    let refused = MISUSES.load(Ordering::Relaxed) - before;
    assert!(refused > 100, "{refused} frees were told");
    for (block, order) in mail.into_inner().expect("nobody panicked") {
        pages.free(block, order).expect("it is nobody else's");
    }
    assert_eq!(pages.check().expect("every frame is in one place").allocated.0, 0);
}

/// A kernel that forgets to switch interrupts off, as several have.
struct Forgetful;

// SAFETY: it breaks the promise on purpose; one thread alone uses it.
unsafe impl Kernel for Forgetful {
    type Rules = nearpage::rules::Places;
    fn this_cpu() -> CpuId {
        CpuId(77)
    }
    fn interrupts_off() -> Interrupts {
        Interrupts(0)
    }
    fn interrupts_restore(_before: Interrupts) {}
    fn now_ns() -> u64 {
        0
    }
    fn phys_to_virt(address: u64) -> *mut u8 {
        std::ptr::without_provenance_mut(address as usize)
    }
    fn lock_fault(fault: &LockFault) {
        std::panic::panic_any(*fault);
    }
}

#[test]
fn a_lock_that_leaves_interrupts_on_is_a_deadlock() {
    let _machine = alone();
    struct Guarded;
    static LOCK: TicketLock<Forgetful, Guarded> = TicketLock::new(Guarded);
    let held = LOCK.lock();
    // The handler that interrupts the holder.
    let handler = std::panic::catch_unwind(|| drop(LOCK.lock()));
    let fault = handler.expect_err("it may not wait for ever");
    let expected = LockFault::Deadlock { cpu: CpuId(77), kind: "Guarded" };
    assert_eq!(fault.downcast_ref(), Some(&expected));
    assert!(LOCK.try_lock().is_none());
    drop(held);
    assert!(LOCK.try_lock().is_some());
}

#[test]
fn tickets_are_served_in_turn_and_nothing_is_lost() {
    let _machine = alone();
    static LOCK: TicketLock<Played, u64> = TicketLock::new(0);
    std::thread::scope(|threads| {
        for cpu in 0..4 {
            threads.spawn(move || {
                run_on(cpu);
                for _ in 0..5000 {
                    *LOCK.lock() += 1;
                }
            });
        }
    });
    assert_eq!(*LOCK.lock(), 20_000);
    assert!(!LOCK.is_locked());
}
