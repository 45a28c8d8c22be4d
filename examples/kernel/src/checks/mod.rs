//! What must hold on every machine. Each check says what it did, and panics if something does not hold.

mod boot_cost;
#[cfg(feature = "bounds")]
mod bounds;
mod conformance;
mod exhaustion;
#[cfg(feature = "beside")]
mod instructions;
pub mod own;
mod placement;
mod plugged;
mod ranges;
mod stress;
mod text;

use nearpage::PageCount;
use nearpage_kernel::Pages;
use nearpage_kernel::boot::Deferred;

use crate::mine::Mine;
use crate::options::Options;
use crate::start::refusals;
use crate::{cpus, log};

pub use boot_cost::run as boot_cost;
#[cfg(feature = "beside")]
pub use instructions::run as instructions;

#[cfg(not(any(feature = "beside", feature = "bounds")))]
pub fn instructions(_pages: &'static Pages<'static, Mine>) {
    panic!("this build counts no instructions: it lacks the feature `beside`");
}

#[cfg(feature = "bounds")]
pub use bounds::run as bounds;

/// All checks, with all CPUs running.
pub fn run(
    pages: &'static Pages<'static, Mine>,
    deferred: &'static Deferred<Mine>,
    options: Options,
) {
    conformance::distinct();
    later(deferred);
    // All memory is there, and nobody has asked for any yet but for stacks and the heap.
    text::texts(pages);
    conformance::run(pages, options);
    placement::run(pages);
    let held = held(pages);
    stress::run(pages, options);
    assert_eq!(self::held(pages), held, "all that the stress allocated is free again");
    ranges::run(pages);
    plugged::run(pages, options);
    exhaustion::run(pages);
    own::check();
    assert_eq!(self::held(pages), held, "all that the checks allocated is free again");
    walk(pages, "at the end");
    assert_eq!(refusals(), 0, "no free was refused");
}

/// What was left for after the boot comes online, by all CPUs at once.
fn later(deferred: &'static Deferred<Mine>) {
    use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
    static DEFERRED: AtomicPtr<Deferred<Mine>> = AtomicPtr::new(core::ptr::null_mut());
    static CAME: AtomicU64 = AtomicU64::new(0);
    let left = deferred.pages_left();
    DEFERRED.store(core::ptr::from_ref(deferred).cast_mut(), Ordering::Release);
    cpus::on_all(|_| {
        // SAFETY: it was put there just now, and is there for ever.
        let deferred = unsafe { &*DEFERRED.load(Ordering::Acquire) };
        loop {
            let came = deferred.step(PageCount(1 << 15)).expect("nobody else brings it online");
            CAME.fetch_add(came.0, Ordering::Relaxed);
            if came.0 == 0 {
                break;
            }
        }
    });
    let came = PageCount(CAME.load(Ordering::Relaxed));
    assert_eq!((came, deferred.pages_left()), (left, PageCount(0)));
    log!("later: {came} pages came online on all CPUs");
}

/// Pages that are allocated, while nobody uses the allocator, without those that only the heap's caches hold.
fn held(pages: &Pages<'_, Mine>) -> PageCount {
    crate::mine::HEAP.objects().expect("the heap is started").shrink_all();
    pages.check().unwrap_or_else(|error| panic!("the walker: {error}")).allocated
}

/// Every frame is in one place, while nobody uses the allocator.
fn walk(pages: &Pages<'_, Mine>, when: &str) {
    let checked = pages.check().unwrap_or_else(|error| panic!("the walker, {when}: {error}"));
    let all: u64 = pages.zones().iter().map(|zone| zone.managed().0).sum();
    assert_eq!(checked.free.0 + checked.cached.0 + checked.allocated.0, all, "all of it is found");
    log!(
        "walker, {when}: {all} pages: {} free, {} cached, {} allocated",
        checked.free,
        checked.cached,
        checked.allocated
    );
}
