//! The buckets of a wait table: lists of entries that lie on the stacks of those who wait.
//!
//! The links are raw pointers, and this is why they hold: an entry is pinned before it is listed, its fields
//! but for the signal are touched only under the lock of its bucket or by its owner while it is not listed,
//! and its owner takes it out before it goes (`Wait`'s drop). Who takes it out to wake it writes the signal as the last
//! access, under the lock.
#![allow(unsafe_code)]

use core::cell::UnsafeCell;
use core::marker::PhantomPinned;
use core::pin::Pin;
use core::ptr::NonNull;
use core::sync::atomic::Ordering;

use nearpage::NodeIndex;
use nearpage::internals::Cell32;
use nearpage::platform::Lock;

use crate::hash::Key;
use crate::parking::{ParkedThread, Parking};

/// What a waiter wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// To see it unlocked.
    Reader,
    /// The same, and it was overtaken too often to look for itself: whoever unlocks looks for it.
    LateReader,
    /// To have a chance to lock it.
    Exclusive,
    /// To be given the lock: it was overtaken too often.
    HandOver,
}

/// The signal of an entry: still waiting.
pub(super) const WAITING: u32 = 0;
/// Woken.
pub(super) const WOKEN: u32 = 1;
/// Woken, and the lock is the waiter's; a reader's wait is over.
pub(super) const OWNER: u32 = 2;

/// What a waker makes of an entry.
pub(super) enum Verdict {
    /// It goes on waiting.
    Stay,
    /// It is woken with this signal.
    Wake(u32),
}

/// Somebody who waits.
pub(super) struct Entry<K: Parking> {
    signal: K::Word,
    fields: UnsafeCell<Fields<K>>,
    _pin: PhantomPinned,
}

struct Fields<K: Parking> {
    next: Option<NonNull<Entry<K>>>,
    previous: Option<NonNull<Entry<K>>>,
    is_listed: bool,
    key: Key,
    kind: Kind,
    thread: ParkedThread,
    node: NodeIndex,
    ticket: u64,
}

impl<K: Parking> Entry<K> {
    /// An entry that is not listed, of somebody on `node`.
    pub(super) fn new(key: Key, node: NodeIndex) -> Self {
        let fields = Fields {
            next: None,
            previous: None,
            is_listed: false,
            key,
            kind: Kind::Reader,
            thread: ParkedThread::default(),
            node,
            ticket: 0,
        };
        Self { signal: K::Word::new(WAITING), fields: UnsafeCell::new(fields), _pin: PhantomPinned }
    }

    /// What its owner sleeps on.
    pub(super) fn signal(&self) -> &K::Word {
        &self.signal
    }
}

/// The entries of a bucket, oldest first.
pub struct Queue<K: Parking> {
    first: Option<NonNull<Entry<K>>>,
    last: Option<NonNull<Entry<K>>>,
    len: u32,
    next_ticket: u64,
}

// SAFETY: a queue owns nothing; the entries that it points to are shared by those who hold its lock, and what is in
// them may go from thread to thread (`Key`, `Kind`, `ParkedThread` and numbers).
unsafe impl<K: Parking> Send for Queue<K> {}

/// A bucket.
pub struct Bucket<K: Parking> {
    /// Entries in the queue, for those who don't hold the lock.
    waiting: K::Word,
    queue: K::Lock<Queue<K>>,
}

impl<K: Parking> core::fmt::Debug for Bucket<K> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Bucket")
            .field("entries", &self.waiting.load(Ordering::Relaxed))
            .finish_non_exhaustive()
    }
}

impl<K: Parking> Bucket<K> {
    /// An empty bucket.
    pub fn new() -> Self {
        let queue = Queue { first: None, last: None, len: 0, next_ticket: 0 };
        Self { waiting: K::Word::new(0), queue: K::Lock::new(queue) }
    }

    /// Whether anybody waits here, for a bit that the caller has cleared before.
    pub(super) fn has_entries(&self) -> bool {
        // The fence pairs with the one in `announce`: a waiter that is not counted yet finds the bit cleared.
        K::Word::full_fence();
        self.waiting.load(Ordering::Relaxed) != 0
    }

    /// Whether nobody waits here.
    pub fn is_empty(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) == 0
    }

    /// Takes the lock.
    pub(super) fn lock(&self) -> LockedBucket<'_, K> {
        LockedBucket { bucket: self, queue: self.queue.lock() }
    }

    /// Keeps the bucket as it is until the answer is dropped.
    pub(crate) fn hold(&self) -> HeldBucket<'_, K> {
        HeldBucket(self.lock())
    }
}

impl<K: Parking> Default for Bucket<K> {
    fn default() -> Self {
        Self::new()
    }
}

/// A bucket that nobody changes.
pub struct HeldBucket<'b, K: Parking + 'b>(LockedBucket<'b, K>);

impl<K: Parking> core::fmt::Debug for HeldBucket<'_, K> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("HeldBucket").field("entries", &self.0.queue.len).finish_non_exhaustive()
    }
}

impl<K: Parking> HeldBucket<'_, K> {
    /// Whether nobody waits here.
    pub fn is_empty(&self) -> bool {
        self.0.queue.len == 0
    }

    /// Forgets all entries without looking at them.
    ///
    /// # Safety
    /// * No entry belongs to a thread of this process: the memory was copied from another process (`fork`), in which the
    ///   threads that wait are. A thread that is forgotten while it waits would take its entry out of a queue that does not
    ///   have it.
    pub unsafe fn forget_all(&mut self) {
        let queue = &mut *self.0.queue;
        (queue.first, queue.last, queue.len) = (None, None, 0);
        self.0.publish();
    }
}

/// A bucket and its queue, locked.
pub(super) struct LockedBucket<'b, K: Parking + 'b> {
    bucket: &'b Bucket<K>,
    queue: <K::Lock<Queue<K>> as Lock<Queue<K>>>::Guard<'b>,
}

/// What a new entry finds in its bucket.
pub(super) struct Company {
    /// Entries, itself included.
    pub(super) chain: u32,
    /// Whether one of them waits for something else.
    pub(super) is_mixed: bool,
}

impl<'b, K: Parking> LockedBucket<'b, K> {
    /// Lists an entry as the last one, with the signal that it waits.
    ///
    /// # Safety
    /// * The entry is of this bucket, and not listed.
    /// * Its owner takes it out ([`remove`](Self::remove)) before it goes away.
    pub(super) unsafe fn push(&mut self, entry: Pin<&Entry<K>>, kind: Kind, thread: ParkedThread) {
        entry.signal.store(WAITING, Ordering::Relaxed);
        let queue = &mut *self.queue;
        let at = NonNull::from(entry.get_ref());
        {
            // SAFETY: the entry is not listed, so its fields are its owner's, who calls.
            let fields = unsafe { &mut *entry.fields.get() };
            (fields.previous, fields.next) = (queue.last, None);
            (fields.kind, fields.thread, fields.ticket) = (kind, thread, queue.next_ticket);
            fields.is_listed = true;
        }
        match queue.last {
            // SAFETY: a listed entry is there, and its fields are ours under the lock.
            Some(last) => unsafe { (*last.as_ref().fields.get()).next = Some(at) },
            None => queue.first = Some(at),
        }
        queue.last = Some(at);
        queue.len += 1;
        queue.next_ticket += 1;
        self.publish();
    }

    /// Makes what was pushed known to those who look at the bucket without its lock. The caller looks at the bit that
    /// it waits for after this.
    pub(super) fn announce(&self) {
        // Pairs with the fence in `has_entries`.
        K::Word::full_fence();
    }

    /// Takes an entry of this bucket out; returns whether it was listed. If not, it has been woken.
    pub(super) fn remove(&mut self, entry: &Entry<K>) -> bool {
        let is_listed = {
            // SAFETY: the fields of an entry of this bucket are ours under the lock.
            unsafe { (*entry.fields.get()).is_listed }
        };
        if is_listed {
            self.unlink(NonNull::from(entry));
        }
        is_listed
    }

    /// Takes a listed entry out.
    fn unlink(&mut self, at: NonNull<Entry<K>>) {
        let queue = &mut *self.queue;
        // SAFETY: the entry is listed, so it is there, and its fields are ours under the lock; so are those of
        // its neighbours, which are other entries.
        unsafe {
            let fields = &mut *at.as_ref().fields.get();
            let (previous, next) = (fields.previous, fields.next);
            fields.is_listed = false;
            match previous {
                Some(previous) => (*previous.as_ref().fields.get()).next = next,
                None => queue.first = next,
            }
            match next {
                Some(next) => (*next.as_ref().fields.get()).previous = previous,
                None => queue.last = previous,
            }
        }
        queue.len -= 1;
        self.publish();
    }

    fn publish(&self) {
        self.bucket.waiting.store(self.queue.len, Ordering::Relaxed);
    }

    /// The entries, oldest first, with their keys.
    fn entries(&self) -> impl Iterator<Item = (NonNull<Entry<K>>, Key)> + '_ {
        let mut next = self.queue.first;
        core::iter::from_fn(move || {
            let at = next?;
            // SAFETY: a listed entry is there, and its fields are ours under the lock.
            let fields = unsafe { &*at.as_ref().fields.get() };
            next = fields.next;
            Some((at, fields.key))
        })
    }

    /// The keys of all entries, oldest first.
    pub(super) fn keys(&self) -> impl Iterator<Item = Key> + '_ {
        self.entries().map(|(_, key)| key)
    }

    /// Who waits here with an entry for `key` that was just listed.
    pub(super) fn company(&self, key: Key) -> Company {
        Company { chain: self.queue.len, is_mixed: self.keys().any(|other| other != key) }
    }

    /// What the next entry will have as its ticket: later ones have higher.
    pub(super) fn next_ticket(&self) -> u64 {
        self.queue.next_ticket
    }

    /// Goes over the entries for `key` that were listed before `ticket`, oldest first; takes out and wakes whom
    /// `judge` says, and gives their threads to `woken` until it takes no more.
    pub(super) fn wake(
        &mut self,
        key: Key,
        ticket: u64,
        woken: &mut Woken,
        mut judge: impl FnMut(Kind) -> Verdict,
    ) {
        let mut next = self.queue.first;
        while let Some(at) = next {
            if woken.is_full() {
                return;
            }
            let (kind, thread, node) = {
                // SAFETY: a listed entry is there, and its fields are ours under the lock.
                let fields = unsafe { &*at.as_ref().fields.get() };
                next = fields.next;
                if fields.key != key || fields.ticket >= ticket {
                    continue;
                }
                (fields.kind, fields.thread, fields.node)
            };
            if let Verdict::Wake(signal) = judge(kind) {
                self.unlink(at);
                woken.add(thread, node);
                // SAFETY: its owner cannot go before it has seen the signal or had the lock.
                let entry = unsafe { at.as_ref() };
                // Release pairs with the Acquire of the owner: it sees what was written under the lock of the page.
                // This is the last access: the owner may be gone after it.
                entry.signal.store(signal, Ordering::Release);
            }
        }
    }
}

/// Threads to be unparked when the bucket's lock is free again.
pub(super) struct Woken {
    threads: [(ParkedThread, NodeIndex); Self::MOST],
    len: usize,
}

impl Woken {
    /// Threads woken in one hold of a bucket's lock.
    const MOST: usize = 16;

    /// None.
    pub(super) fn new() -> Self {
        Self { threads: [(ParkedThread::default(), NodeIndex(0)); Self::MOST], len: 0 }
    }

    /// Whether there is no room for more.
    pub(super) fn is_full(&self) -> bool {
        self.len == Self::MOST
    }

    fn add(&mut self, thread: ParkedThread, node: NodeIndex) {
        self.threads[self.len] = (thread, node);
        self.len += 1;
    }

    /// The threads and the nodes that they wait on.
    pub(super) fn threads(&self) -> &[(ParkedThread, NodeIndex)] {
        &self.threads[..self.len]
    }
}
