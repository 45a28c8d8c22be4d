//! Page locks: exclusion, no lost wake-up, no double hand-over, nothing lost with a wait that ends early.

use std::marker::PhantomData;
use std::pin::pin;
use std::sync::Mutex;
use std::task::Poll;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use nearpage::internals::Cell32;
use nearpage::rules::WaitersBit;
use nearpage::{NodeIndex, Pfn};
use nearpage_pagelock::internals::{
    Awaited, Bucket, Key, OVERTAKEN_MAX, PageSite, WaitTable, try_lock,
};
use nearpage_pagelock::{Parked, ParkedThread, Parking, Site, Wait};
use std::sync::atomic::Ordering;

use crate::cell32::Honest;
use crate::explore::{assert_found, explore};
use crate::model_lock::ModelLock;
use crate::mutant::{Mutant, Mutation};

/// Preemptions in a run of two threads.
const OF_TWO: usize = 8;
/// Preemptions in a run of three.
const OF_THREE: usize = 3;

/// The host: its threads park on loom's scheduler.
struct Host<W> {
    threads: Mutex<Vec<thread::Thread>>,
    words: PhantomData<fn() -> W>,
}

impl<W: Cell32> Parking for Host<W> {
    type Word = W;
    type Lock<T> = ModelLock<T>;

    fn this_thread(&self, _signal: &W) -> ParkedThread {
        let mut threads = self.threads.lock().expect("nobody panics with it");
        threads.push(thread::current());
        ParkedThread(threads.len() - 1)
    }

    fn park(&self, _signal: &W, _deadline_ns: Option<u64>) -> Parked {
        thread::park();
        Parked::Awake
    }

    fn unpark(&self, thread: ParkedThread) {
        let thread = self.threads.lock().expect("nobody panics with it")[thread.0].clone();
        thread.unpark();
    }

    fn now_ns(&self) -> u64 {
        0
    }
}

/// A page, its wait table of one bucket, and a number that its lock keeps whole.
struct Page<W: Cell32> {
    host: Host<W>,
    word: W,
    buckets: [Bucket<Host<W>>; 1],
    waiters_bit: WaitersBit,
    number: UnsafeCell<u32>,
}

// SAFETY: the number is reached under the lock of the page, which is what the models are about; loom tells.
unsafe impl<W: Cell32 + Sync> Sync for Page<W> {}

impl<W: Cell32 + Send + Sync + 'static> Page<W> {
    fn new(waiters_bit: WaitersBit) -> Arc<Self> {
        Arc::new(Self {
            host: Host { threads: Mutex::default(), words: PhantomData },
            word: W::new(0),
            buckets: [Bucket::new()],
            waiters_bit,
            number: UnsafeCell::new(0),
        })
    }

    /// Calls `work` with the page's site.
    fn at<R>(&self, work: impl FnOnce(PageSite<'_, Host<W>>) -> R) -> R {
        let table = WaitTable::new(&self.buckets);
        let key = Key::page(Pfn(0));
        let site = Site { parking: &self.host, table: &table, key, here: NodeIndex(0) };
        work(PageSite { site, word: &self.word, waiters_bit: self.waiters_bit })
    }

    fn lock(&self) {
        self.lock_after(0);
    }

    /// Locks as somebody who was overtaken so often.
    fn lock_after(&self, overtaken: u32) {
        if !try_lock(&self.word) {
            self.at(|site| {
                let wait = pin!(Wait::new(Awaited::Lock(site)).overtaken_before(overtaken));
                wait.as_ref().block(None).expect("nobody interrupts");
            });
        }
    }

    fn unlock(&self) {
        assert!(self.at(|site| site.unlock()));
    }

    fn add_one(&self) {
        self.number.with_mut(|number| {
            // SAFETY: the page is locked by the caller; loom tells if it is not.
            unsafe { *number += 1 }
        });
    }

    fn number(&self) -> u32 {
        self.number.with(|number| {
            // SAFETY: nobody writes it any more; loom tells if somebody does.
            unsafe { *number }
        })
    }

    fn lock_add_unlock(&self, overtaken: u32) {
        self.lock_after(overtaken);
        self.add_one();
        self.unlock();
    }

    /// Nobody has the lock, waits, or is said to wait.
    fn assert_idle(&self) {
        assert_eq!(self.word.load(Ordering::Relaxed), 0);
        assert!(self.buckets[0].is_empty());
    }
}

const BOTH: [WaitersBit; 2] = [WaitersBit::On, WaitersBit::Off];

/// Two threads, each once; who comes second waits, and sees what the first one did.
fn two_threads<W: Cell32 + Send + Sync + 'static>(waiters_bit: WaitersBit) {
    let page = Page::<W>::new(waiters_bit);
    let other = page.clone();
    let other = thread::spawn(move || other.lock_add_unlock(0));
    page.lock_add_unlock(0);
    other.join().expect("it does not panic");
    assert_eq!(page.number(), 2);
    page.assert_idle();
}

#[test]
fn no_wake_up_is_lost() {
    for bit in BOTH {
        explore("lock and unlock", OF_TWO, move || two_threads::<Honest>(bit));
    }
}

#[test]
fn three_threads_get_their_turns() {
    explore("three threads", OF_THREE, || {
        let page = Page::<Honest>::new(WaitersBit::On);
        let others =
            [page.clone(), page.clone()].map(|page| thread::spawn(move || page.lock_add_unlock(0)));
        page.lock_add_unlock(0);
        others.into_iter().for_each(|other| other.join().expect("it does not panic"));
        assert_eq!(page.number(), 3);
        page.assert_idle();
    });
}

/// Both wait for their last time, so each is given the lock by an unlock: never to two.
#[test]
fn a_lock_is_handed_to_one() {
    explore("hand-over", OF_THREE, || {
        let page = Page::<Honest>::new(WaitersBit::On);
        page.lock();
        let others = [page.clone(), page.clone()]
            .map(|page| thread::spawn(move || page.lock_add_unlock(OVERTAKEN_MAX)));
        page.add_one();
        page.unlock();
        // And somebody who comes between, if he can.
        if try_lock(&page.word) {
            page.add_one();
            page.unlock();
        }
        others.into_iter().for_each(|other| other.join().expect("it does not panic"));
        assert!((3..=4).contains(&page.number()));
        page.assert_idle();
    });
}

#[test]
fn readers_see_what_was_written_before_the_unlock() {
    for bit in BOTH {
        explore("read", OF_TWO, move || {
            let page = Page::<Honest>::new(bit);
            page.lock();
            let reader = page.clone();
            let reader = thread::spawn(move || {
                reader.at(|site| {
                    let wait = pin!(Wait::new(Awaited::Unlock(site)));
                    wait.as_ref().block(None).expect("nobody interrupts");
                });
                assert_eq!(reader.number(), 1);
            });
            page.add_one();
            page.unlock();
            reader.join().expect("it does not panic");
            page.assert_idle();
        });
    }
}

/// How a wait ends early.
#[derive(Clone, Copy)]
enum End {
    /// Its time is up.
    Cancelled,
    /// Its stack goes away.
    Dropped,
}

/// One thread gives up while it may have been woken; the other one waits and must not miss anything.
fn one_gives_up(bit: WaitersBit, end: End, overtaken: u32) {
    let page = Page::<Honest>::new(bit);
    page.lock();
    let (brief, patient) = (page.clone(), page.clone());
    let brief = thread::spawn(move || {
        brief.at(|site| {
            let wait = pin!(Wait::new(Awaited::Lock(site)).overtaken_before(overtaken));
            let is_ours = match (wait.as_ref().poll(), end) {
                (Poll::Ready(()), _) => true,
                (Poll::Pending, End::Cancelled) => wait.as_ref().cancel(),
                (Poll::Pending, End::Dropped) => false,
            };
            if is_ours {
                brief.add_one();
                brief.unlock();
            }
        });
    });
    let patient = thread::spawn(move || patient.lock_add_unlock(0));
    page.unlock();
    brief.join().expect("it does not panic");
    patient.join().expect("it does not panic");
    assert!((1..=2).contains(&page.number()));
    page.assert_idle();
}

#[test]
fn a_wake_up_of_a_wait_that_ends_early_is_not_lost() {
    for bit in BOTH {
        for overtaken in [0, OVERTAKEN_MAX] {
            for end in [End::Cancelled, End::Dropped] {
                explore("one gives up", OF_THREE, move || one_gives_up(bit, end, overtaken));
            }
        }
    }
}

#[test]
fn a_bit_of_a_word_is_waited_for() {
    explore("bit of a word", OF_TWO, || {
        let page = Page::<Honest>::new(WaitersBit::On);
        let bit = Arc::new(Honest::new(2));
        let (there, waited_for) = (page.clone(), bit.clone());
        let waiter = thread::spawn(move || {
            there.at(|page| {
                let is_clear = || waited_for.load(Ordering::Acquire) & 2 == 0;
                let site = Site { key: Key::bit(64, 1), ..page.site };
                let wait = pin!(Wait::new(Awaited::Clear(site, &is_clear)));
                wait.as_ref().block(None).expect("nobody interrupts");
            });
            assert_eq!(there.number(), 1);
        });
        page.add_one();
        bit.clear(2, Ordering::Release);
        page.at(|page| Site { key: Key::bit(64, 1), ..page.site }.wake_all());
        waiter.join().expect("it does not panic");
        page.assert_idle();
    });
}

/// The canary: a word whose waiters bit is set after the lock bit was looked at, not with it.
struct LateWaiters;

const LOCKED: u32 = 1 << 10;
const WAITERS: u32 = 1 << 11;

impl Mutation for LateWaiters {
    fn replace(cell: &Honest, current: u32, new: u32, orders: [Ordering; 2]) -> Result<u32, u32> {
        let [success, failure] = orders;
        if current & LOCKED == 0 || new & WAITERS == 0 {
            return cell.replace(current, new, success, failure);
        }
        match cell.load(failure) {
            found if found == current => {
                cell.set(WAITERS, success);
                Ok(current)
            }
            found => Err(found),
        }
    }
}

#[test]
fn a_waiters_bit_that_is_set_after_the_test_is_found() {
    let test = "page_lock::a_waiters_bit_that_is_set_after_the_test_is_found";
    assert_found(test, "deadlock", || two_threads::<Mutant<LateWaiters>>(WaitersBit::On));
}

/// The canary: an unlock that does not wait for what was written before it.
struct RelaxedUnlock;

impl Mutation for RelaxedUnlock {
    fn clear(cell: &Honest, bit: u32, order: Ordering) -> bool {
        let order = if order == Ordering::Release { Ordering::Relaxed } else { order };
        cell.clear(bit, order)
    }
}

#[test]
fn an_unlock_without_release_is_found() {
    let test = "page_lock::an_unlock_without_release_is_found";
    assert_found(test, "Causality violation", || {
        two_threads::<Mutant<RelaxedUnlock>>(WaitersBit::On)
    });
}
