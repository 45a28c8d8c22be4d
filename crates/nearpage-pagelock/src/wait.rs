//! One wait, step by step, and the unlock that ends it.
#![allow(unsafe_code)]

use core::cell::Cell;
use core::pin::Pin;
use core::sync::atomic::Ordering;
use core::task::Poll;

use nearpage::NodeIndex;
use nearpage::internals::Cell32;
use nearpage::platform::Access;
use nearpage::rules::WaitersBit;

use crate::bits::{self, LockBits, clear_waiters, read, update};
use crate::hash::Key;
use crate::parking::{OVERTAKEN_MAX, Parked, Parking};
use crate::queue::{Entry, Kind, LockedBucket, OWNER, Verdict, WAITING, WOKEN, Woken};
use crate::table::{self, WaitTable};

/// Where somebody waits or wakes: a key of a table, and who looks at it.
pub struct Site<'t, K: Parking> {
    /// The host.
    pub parking: &'t K,
    /// The table.
    pub table: &'t WaitTable<'t, K>,
    /// What is waited for.
    pub key: Key,
    /// The node of the CPU that waits or wakes.
    pub here: NodeIndex,
}

impl<K: Parking> core::fmt::Debug for Site<'_, K> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Site")
            .field("key", &self.key)
            .field("here", &self.here)
            .finish_non_exhaustive()
    }
}

/// The lock of a page, and where it is waited for.
pub struct PageSite<'t, K: Parking> {
    /// Where.
    pub site: Site<'t, K>,
    /// The frame's word.
    pub word: &'t K::Word,
    /// Whether it tells that somebody waits.
    pub waiters_bit: WaitersBit,
}

impl<K: Parking> core::fmt::Debug for PageSite<'_, K> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("PageSite")
            .field("site", &self.site)
            .field("waiters_bit", &self.waiters_bit)
            .finish_non_exhaustive()
    }
}

impl<K: Parking> Clone for Site<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: Parking> Copy for Site<'_, K> {}

impl<K: Parking> Clone for PageSite<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: Parking> Copy for PageSite<'_, K> {}

/// Locks a page that is not locked; returns whether it was so.
#[inline(always)]
pub fn try_lock<C: Cell32>(word: &C) -> bool {
    bits::lock(word)
}

/// What an unlock found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unlocked {
    /// Nobody waits: it is done.
    AndNobodyWaits,
    /// Somebody may wait: the caller wakes him ([`PageSite::wake`]).
    AndSomebodyWaits,
    /// The page was not locked.
    NotLocked,
}

/// Clears the lock bit of a page.
#[inline(always)]
pub fn try_unlock<C: Cell32>(word: &C, waiters_bit: WaitersBit) -> Unlocked {
    if !bits::unlock(word) {
        return Unlocked::NotLocked;
    }
    // A waiter that said so before the page was unlocked is seen: this reads what the unlock left, or something later.
    // One that came later found the page unlocked, or is some other owner's.
    let bits = LockBits(word.load(Ordering::Relaxed));
    if waiters_bit == WaitersBit::Off || bits.has_waiters() {
        Unlocked::AndSomebodyWaits
    } else {
        Unlocked::AndNobodyWaits
    }
}

impl<K: Parking> PageSite<'_, K> {
    /// Unlocks the page, and wakes who waits for it; returns whether it was locked.
    pub fn unlock(self) -> bool {
        match try_unlock(self.word, self.waiters_bit) {
            Unlocked::AndNobodyWaits => true,
            Unlocked::AndSomebodyWaits => {
                self.wake();
                true
            }
            Unlocked::NotLocked => false,
        }
    }

    /// Wakes all readers, and the oldest of those who want the lock, after the page was unlocked.
    pub fn wake(self) {
        let Self { site, word, waiters_bit } = self;
        site.touch(Access::Read);
        if waiters_bit == WaitersBit::Off && !table::bucket(site.table, site.key).has_entries() {
            return;
        }
        let mut lock_is_given = false;
        let mut was_unlocked = None;
        site.wake(
            |kind| {
                // The first look is before the lock is handed to anybody.
                let was_unlocked = *was_unlocked.get_or_insert_with(|| !read(word).is_locked());
                match kind {
                    Kind::Reader => Verdict::Wake(WOKEN),
                    Kind::LateReader if was_unlocked => Verdict::Wake(OWNER),
                    Kind::LateReader => Verdict::Stay,
                    _ if lock_is_given => Verdict::Stay,
                    _ => {
                        // Whoever took the lock meanwhile will wake the next.
                        lock_is_given = true;
                        self.judge_exclusive(kind)
                    }
                }
            },
            |bucket| settle(bucket, site.key, word),
        );
    }

    fn judge_exclusive(self, kind: Kind) -> Verdict {
        match kind {
            // The new owner sees what the ones before it wrote: Acquire as for any lock.
            Kind::HandOver if try_lock(self.word) => {
                self.site.table.state.events.handed_over();
                Verdict::Wake(OWNER)
            }
            Kind::Exclusive if !read(self.word).is_locked() => Verdict::Wake(WOKEN),
            _ => Verdict::Stay,
        }
    }
}

/// Clears the waiters bit if nobody waits any more.
fn settle<K: Parking>(bucket: &LockedBucket<'_, K>, key: Key, word: &K::Word) {
    if LockBits(word.load(Ordering::Relaxed)).has_waiters()
        && !bucket.keys().any(|other| other == key)
    {
        clear_waiters(word);
    }
}

impl<K: Parking> Site<'_, K> {
    /// The bucket's line is touched, for hosts that charge for it.
    #[inline(always)]
    fn touch(self, access: Access) {
        self.parking.touch(core::ptr::from_ref(table::bucket(self.table, self.key)).cast(), access);
    }

    /// Wakes all who wait for the key, if there are any.
    pub fn wake_all(self) {
        self.touch(Access::Read);
        if table::bucket(self.table, self.key).has_entries() {
            self.wake(|_| Verdict::Wake(WOKEN), |_| {});
        }
    }

    /// Wakes whom `judge` says of those who wait now, some at a time; `after` ends each hold of the bucket.
    fn wake(self, mut judge: impl FnMut(Kind) -> Verdict, after: impl Fn(&LockedBucket<'_, K>)) {
        let mut ticket = None;
        loop {
            let mut woken = Woken::new();
            self.touch(Access::Write);
            {
                let mut bucket = table::lock(self.table, self.key);
                let ticket = *ticket.get_or_insert(bucket.next_ticket());
                bucket.wake(self.key, ticket, &mut woken, &mut judge);
                after(&bucket);
            }
            for &(thread, node) in woken.threads() {
                self.table.state.events.woken(node != self.here);
                self.parking.unpark(thread);
            }
            if !woken.is_full() {
                return;
            }
        }
    }
}

/// What is waited for.
pub enum Awaited<'t, K: Parking> {
    /// The lock of a page.
    Lock(PageSite<'t, K>),
    /// That a page is unlocked.
    Unlock(PageSite<'t, K>),
    /// That a bit is clear, which the function tells.
    Clear(Site<'t, K>, &'t dyn Fn() -> bool),
}

impl<K: Parking> core::fmt::Debug for Awaited<'_, K> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let name = match self {
            Self::Lock(_) => "Lock",
            Self::Unlock(_) => "Unlock",
            Self::Clear(..) => "Clear",
        };
        f.debug_tuple(name).field(&self.site()).finish()
    }
}

impl<'t, K: Parking> Awaited<'t, K> {
    fn site(&self) -> Site<'t, K> {
        match self {
            Self::Lock(page) | Self::Unlock(page) => page.site,
            Self::Clear(site, _) => *site,
        }
    }
}

/// Why a wait ended without what was waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Interrupted {
    /// The time was up.
    TimedOut,
    /// The host cancelled it.
    Cancelled,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Not queued.
    Idle,
    /// Queued, or woken and not run since.
    Queued,
    /// Over: what was waited for is there, and the lock, if it was that, is the caller's.
    Done,
}

/// One wait. It goes on by [`poll`](Self::poll), as a future does, so that coroutines and threads can wait alike;
/// [`block`](Self::block) is for threads. Dropping it ends it and leaves nothing behind.
pub struct Wait<'t, K: Parking> {
    awaited: Awaited<'t, K>,
    entry: Entry<K>,
    state: Cell<State>,
    overtaken: Cell<u32>,
}

impl<K: Parking> core::fmt::Debug for Wait<'_, K> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Wait")
            .field("awaited", &self.awaited)
            .field("state", &self.state)
            .field("overtaken", &self.overtaken)
            .finish_non_exhaustive()
    }
}

impl<'t, K: Parking> Wait<'t, K> {
    /// A wait that has not begun.
    pub fn new(awaited: Awaited<'t, K>) -> Self {
        let site = awaited.site();
        Self {
            awaited,
            entry: Entry::new(site.key, site.here),
            state: Cell::new(State::Idle),
            overtaken: Cell::new(0),
        }
    }

    /// The same wait, of somebody who was overtaken so often in one that ended early.
    pub fn overtaken_before(self, times: u32) -> Self {
        self.overtaken.set(times);
        self
    }

    /// Goes on as far as possible without sleeping. Ready: what was waited for is there. Pending: the caller may
    /// sleep until its thread is unparked, and then must go on.
    pub fn poll(self: Pin<&Self>) -> Poll<()> {
        match self.state.get() {
            State::Done => return Poll::Ready(()),
            State::Idle => {}
            State::Queued => match self.signal() {
                WAITING => return Poll::Pending,
                signal => {
                    if self.take(signal) {
                        return Poll::Ready(());
                    }
                }
            },
        }
        self.queue()
    }

    /// Whether it has been woken and has to go on.
    pub fn is_woken(&self) -> bool {
        self.state.get() == State::Queued && self.signal() != WAITING
    }

    /// How often somebody else had the lock when this wait was woken.
    pub fn overtaken(&self) -> u32 {
        self.overtaken.get()
    }

    fn signal(&self) -> u32 {
        // Acquire pairs with the Release of the waker.
        self.entry.signal().load(Ordering::Acquire)
    }

    /// What a wake-up brought: whether the wait is over.
    fn take(&self, signal: u32) -> bool {
        // It is not listed any more, also if the caller's word panics.
        self.state.set(State::Idle);
        let is_over = match &self.awaited {
            // The unlock may have been before this wait began: only a look tells, ours or that of who woke us.
            Awaited::Unlock(page) => signal == OWNER || !read(page.word).is_locked(),
            Awaited::Lock(page) => signal == OWNER || try_lock(page.word),
            Awaited::Clear(_, is_clear) => is_clear(),
        };
        if is_over {
            self.state.set(State::Done);
        } else {
            self.overtaken.set(self.overtaken.get() + 1);
        }
        is_over
    }

    /// Puts the entry into its bucket, unless what is waited for is there.
    fn queue(self: Pin<&Self>) -> Poll<()> {
        let site = self.awaited.site();
        // SAFETY: the entry is a field, pinned as the wait is, and nothing moves it out.
        let entry = unsafe { self.map_unchecked(|wait| &wait.entry) };
        let thread = site.parking.this_thread(entry.get_ref().signal());
        site.touch(Access::Write);
        let mut bucket = table::lock(site.table, site.key);
        // SAFETY: 1. The bucket is that of the entry's key, and the entry is not listed: the state is `Idle`.
        // 2. It is taken out in `leave`, at the latest when the wait is dropped.
        unsafe { bucket.push(entry, self.kind(), thread) };
        // From here on: the caller's word may panic when it is asked, and the entry must not stay behind then.
        self.state.set(State::Queued);
        bucket.announce();
        if self.is_there() {
            bucket.remove(entry.get_ref());
            self.settle(&bucket);
            self.state.set(State::Done);
            return Poll::Ready(());
        }
        site.table.state.events.queued(&bucket.company(site.key));
        Poll::Pending
    }

    fn kind(&self) -> Kind {
        match self.awaited {
            Awaited::Clear(..) => Kind::Reader,
            Awaited::Lock(_) if self.overtaken.get() >= OVERTAKEN_MAX => Kind::HandOver,
            Awaited::Lock(_) => Kind::Exclusive,
            // It is never given the lock: who owns the block may take off locks that are nobody's.
            Awaited::Unlock(_) if self.overtaken.get() >= OVERTAKEN_MAX => Kind::LateReader,
            Awaited::Unlock(_) => Kind::Reader,
        }
    }

    /// Looks whether what is waited for is there, and takes it; else says that somebody waits.
    fn is_there(&self) -> bool {
        let before = match &self.awaited {
            Awaited::Lock(page) => {
                update(page.word, |bits| bits.locked_or_waited_for(page.waiters_bit))
            }
            Awaited::Unlock(page) => {
                update(page.word, |bits| bits.read_or_waited_for(page.waiters_bit))
            }
            Awaited::Clear(_, is_clear) => return is_clear(),
        };
        !before.is_locked()
    }

    fn settle(&self, bucket: &LockedBucket<'_, K>) {
        if let Awaited::Lock(page) | Awaited::Unlock(page) = &self.awaited {
            settle(bucket, page.site.key, page.word);
        }
    }

    /// Ends the wait. Returns whether what was waited for came in the last moment; then the lock, if it was that,
    /// is the caller's.
    pub fn cancel(&self) -> bool {
        match self.state.get() {
            State::Idle => false,
            State::Done => true,
            State::Queued => self.leave(),
        }
    }

    fn leave(&self) -> bool {
        let site = self.awaited.site();
        let mut bucket = table::lock(site.table, site.key);
        if bucket.remove(&self.entry) {
            self.settle(&bucket);
            self.state.set(State::Idle);
            return false;
        }
        drop(bucket);
        // It has been woken: the wake-up must not get lost. If the lock is taken, whoever has it wakes the next.
        self.take(self.signal())
    }

    /// Sleeps until what is waited for is there.
    ///
    /// # Errors
    /// [`Interrupted`]; nothing is left behind.
    pub fn block(self: Pin<&Self>, deadline_ns: Option<u64>) -> Result<(), Interrupted> {
        let parking = self.awaited.site().parking;
        while self.poll().is_pending() {
            let parked = parking.park(self.get_ref().entry.signal(), deadline_ns);
            let is_late = || deadline_ns.is_some_and(|deadline| parking.now_ns() >= deadline);
            let interrupted = match parked {
                Parked::Cancelled => Interrupted::Cancelled,
                Parked::Awake if is_late() => Interrupted::TimedOut,
                Parked::Awake => continue,
            };
            return if self.cancel() { Ok(()) } else { Err(interrupted) };
        }
        Ok(())
    }
}

impl<K: Parking> Drop for Wait<'_, K> {
    fn drop(&mut self) {
        if self.state.get() == State::Queued
            && self.leave()
            && let Awaited::Lock(page) = &self.awaited
        {
            // It was given the lock and nobody will use it.
            page.unlock();
        }
    }
}
