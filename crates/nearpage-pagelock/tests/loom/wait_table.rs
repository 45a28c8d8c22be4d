//! A fork holds all buckets of a wait table, or the first one if nobody ever used the table. Meanwhile no other thread has the lock of
//! any bucket.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::pin::pin;
use std::sync::atomic::Ordering;

use loom::sync::atomic::AtomicUsize;
use loom::thread;
use nearpage::internals::Cell32;
use nearpage::platform::Lock;
use nearpage::{NodeIndex, Pfn};
use nearpage_pagelock::internals::{Awaited, Bucket, Key, WaitTable, hold_buckets};
use nearpage_pagelock::{Parked, ParkedThread, Parking, Site, Wait};

use crate::cell32::Honest;
use crate::explore::{assert_found, explore};
use crate::model_lock::ModelLock;
use crate::mutant::{Mutant, Mutation};

loom::lazy_static! {
    /// Locks that are held now.
    static ref HELD: AtomicUsize = AtomicUsize::new(0);
}

struct CountedLock<T>(ModelLock<T>);

struct CountedGuard<'a, T: 'a>(<ModelLock<T> as Lock<T>>::Guard<'a>);

impl<T> Lock<T> for CountedLock<T> {
    type Guard<'a>
        = CountedGuard<'a, T>
    where
        T: 'a;

    fn new(value: T) -> Self {
        Self(ModelLock::new(value))
    }

    fn lock(&self) -> CountedGuard<'_, T> {
        let guard = self.0.lock();
        HELD.fetch_add(1, Ordering::Relaxed);
        CountedGuard(guard)
    }
}

impl<T> Deref for CountedGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for CountedGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T> Drop for CountedGuard<'_, T> {
    fn drop(&mut self) {
        HELD.fetch_sub(1, Ordering::Relaxed);
    }
}

struct Host<W>(PhantomData<fn() -> W>);

impl<W: Cell32> Parking for Host<W> {
    type Word = W;
    type Lock<T> = CountedLock<T>;

    fn this_thread(&self, _: &W) -> ParkedThread {
        ParkedThread::default()
    }

    fn park(&self, _: &W, _: Option<u64>) -> Parked {
        unreachable!("nobody blocks")
    }

    fn unpark(&self, _: ParkedThread) {}

    fn now_ns(&self) -> u64 {
        0
    }
}

/// One thread begins to wait and gives up, while another holds the table, as a fork does.
fn hold_against_first_use<W: Cell32 + Send + Sync + 'static>() {
    let buckets: &'static [Bucket<Host<W>>] = Box::leak(Box::new([(); 2].map(|()| Bucket::new())));
    let table: &'static WaitTable<'static, Host<W>> = Box::leak(Box::new(WaitTable::new(buckets)));
    let waiter = thread::spawn(move || {
        let host = Host(PhantomData);
        // A key of the second bucket: the first is held in any case.
        let key = (0..64).map(|pfn| Key::page(Pfn(pfn))).find(|key| key.bucket() % 2 == 1);
        let key = key.expect("half of all are there");
        let site = Site { parking: &host, table, key, here: NodeIndex(0) };
        let is_clear = || false;
        let wait = pin!(Wait::new(Awaited::Clear(site, &is_clear)));
        assert!(wait.as_ref().poll().is_pending());
    });
    {
        let held: Vec<_> = hold_buckets(&table).collect();
        // An exchange: loom tries no other thread before a load.
        let all = HELD.fetch_add(0, Ordering::Relaxed);
        assert_eq!(all, held.len(), "a lock is held by another thread");
        assert!(held.len() == 2 || held.iter().all(|bucket| bucket.is_empty()));
    }
    waiter.join().expect("it does not panic");
    assert!(hold_buckets(&table).all(|bucket| bucket.is_empty()));
}

#[test]
fn who_uses_a_table_first_waits_for_who_holds_it() {
    explore("hold against first use", 5, hold_against_first_use::<Honest>);
}

/// The canary: nobody says that the table is used.
struct NeverUsed;

impl Mutation for NeverUsed {
    fn store(cell: &Honest, value: u32, order: Ordering) {
        if value == 0 {
            cell.store(value, order);
        }
    }
}

#[test]
fn a_use_that_nobody_says_is_found() {
    let test = "wait_table::a_use_that_nobody_says_is_found";
    let model = hold_against_first_use::<Mutant<NeverUsed>>;
    assert_found(test, "a lock is held by another thread", model);
}
