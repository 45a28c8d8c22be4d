//! A heap: what a thread allocates from.
//!
//! For each class a heap has a *current* span, whose free objects are on the heap's list, and a list of *partial* spans,
//! which have free objects too. A span without any is *full*, and on no list: the first free puts it on the list of the
//! partial ones. An empty span goes back to the pages, but for the last of its class.
//!
//! An object counts as used while it is on the heap's list: `malloc` then changes nothing but that list, and the number of
//! calls follows from the lengths of lists.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use crate::classes::{CLASSES, class_size, span_objects, span_order};
use crate::hardened;
use crate::idle::POOL;
use crate::link::{Object, is_hardened, link, next};
use crate::pages;
use crate::parcel::{self, Closed, Parcel};
use crate::span::{self, NO_OWNER, NO_SPAN, Place, Span};
use crate::watch;

/// Heaps for which a thread collects what it frees of theirs.
const OUTS: usize = 8;
/// Bytes of objects that are carved at a time of a class's first span: one page is touched by it, not the whole span.
const CARVED_BYTES: usize = 4096;
/// The same for later spans: a program that needs a second one will fill it.
const CARVED_BYTES_LATER: usize = 16384;
/// Partial spans that are looked at for one on the thread's node.
const LOOKS: usize = 16;
/// No free brings `used` here.
const NO_ALARM: u32 = u32::MAX;

/// Most heaps; threads beyond borrow one for each call.
pub(crate) const HEAPS_MAX: usize = NO_OWNER as usize - 1;

/// All heaps by their ids.
pub(crate) static HEAPS: [AtomicPtr<Heap>; HEAPS_MAX + 1] =
    [const { AtomicPtr::new(null_mut()) }; HEAPS_MAX + 1];

/// What a heap counts. Its thread writes, all read.
pub(crate) struct Counts {
    /// Objects that came to the heap's lists, by class.
    pub handed: [AtomicU64; CLASSES],
    /// Spans taken from pages, by class.
    pub spans: [AtomicU64; CLASSES],
    /// Objects of other heaps that the thread freed.
    pub freed_elsewhere: AtomicU64,
    /// Those of them whose heap is of another node than this one.
    pub freed_on_other_node: AtomicU64,
    /// Batches that went home, and objects that came.
    pub batches: AtomicU64,
    pub came_home: AtomicU64,
}

/// What other threads write.
#[repr(align(128))]
struct Shared {
    inbox: AtomicPtr<Object>,
    is_idle: AtomicBool,
}

#[repr(C)]
pub(crate) struct Heap {
    /// The list of each class.
    pub free: [*mut Object; CLASSES],
    pub id: u16,
    node: u16,
    current: [u32; CLASSES],
    partial: [u32; CLASSES],
    outs: [Parcel; OUTS],
    pub counts: Counts,
    shared: Shared,
    /// The next heap without a thread. The pool's lock guards it.
    pub next_idle: *mut Heap,
}

/// Adds to a counter that only one thread writes.
fn count(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

impl Heap {
    /// Makes a heap where there are zeroes.
    ///
    /// # Safety
    /// * The place is as large and as aligned, and the caller's.
    pub unsafe fn make(at: *mut Heap, id: u16) {
        // SAFETY: the caller's promise. Zeroes are null pointers, counters and flags.
        unsafe {
            (*at).id = id;
            (*at).current = [NO_SPAN; CLASSES];
            (*at).partial = [NO_SPAN; CLASSES];
            (*at).node = pages::here();
        }
    }

    pub fn node(&self) -> u16 {
        self.node
    }

    pub fn is_idle(&self) -> bool {
        // Pairs with `set_idle`: a thread that has put something into the inbox sees here that the heap has no thread, or
        // the heap's last look finds what was put there.
        self.shared.is_idle.load(Ordering::SeqCst)
    }

    pub fn set_idle(&self, is_idle: bool) {
        self.shared.is_idle.store(is_idle, Ordering::SeqCst);
    }

    /// Pops an object, if the list has one.
    #[inline(always)]
    pub fn pop_slow(&mut self, class: usize) -> *mut Object {
        let object = self.free[class];
        if !object.is_null() {
            // SAFETY: what is on the list is free and this heap's.
            self.free[class] = unsafe { next(object, class_size(class)) };
        }
        object
    }

    /// Fills the empty list of a class. `false` without memory.
    pub fn refill(&mut self, class: usize) -> bool {
        self.collect();
        if pages::is_local() && pages::here() != self.node {
            self.settle();
            self.node = pages::here();
        }
        loop {
            let current = self.current[class];
            if current != NO_SPAN {
                let span = span::span(current as usize);
                // SAFETY: the span is this heap's.
                unsafe {
                    if self.take_list(span, class) || self.carve(span, class) {
                        return true;
                    }
                    (*span).place = Place::Full;
                    (*span).alarm = (*span).used - 1;
                }
                self.current[class] = NO_SPAN;
            }
            let Some(unit) = self.partial_for(class).or_else(|| self.fresh(class)) else {
                return false;
            };
            self.current[class] = unit;
        }
    }

    /// Moves the span's free objects to the heap's list.
    ///
    /// # Safety
    /// * The span is this heap's, and current.
    unsafe fn take_list(&mut self, span: *mut Span, class: usize) -> bool {
        // SAFETY: the caller's promise.
        unsafe {
            if (*span).free.is_null() {
                return false;
            }
            self.free[class] = (*span).free;
            (*span).free = null_mut();
            let taken = (*span).carved - (*span).used;
            (*span).used = (*span).carved;
            count(&self.counts.handed[class], taken.into());
            watch::note(taken.into());
        }
        true
    }

    /// Makes a list of objects that were never used.
    ///
    /// # Safety
    /// * As [`take_list`](Self::take_list).
    unsafe fn carve(&mut self, span: *mut Span, class: usize) -> bool {
        let size = class_size(class);
        // SAFETY: the caller's promise; the objects lie in the span.
        unsafe {
            let left = (*span).capacity - (*span).carved;
            if left == 0 {
                return false;
            }
            let is_first = self.counts.spans[class].load(Ordering::Relaxed) == 1;
            let bytes = if is_first { CARVED_BYTES } else { CARVED_BYTES_LATER };
            let more = left.min((bytes / size).max(1) as u32);
            let first = (*span).start.add((*span).carved as usize * size);
            for at in 0..more as usize - 1 {
                let object = first.add(at * size);
                link(object.cast(), object.add(size).cast());
            }
            link(first.add((more as usize - 1) * size).cast(), null_mut());
            self.free[class] = first.cast();
            (*span).carved += more;
            (*span).used += more;
            count(&self.counts.handed[class], more.into());
            watch::note(more.into());
        }
        true
    }

    /// Takes a partial span, of this node if there is one, off its list.
    fn partial_for(&mut self, class: usize) -> Option<u32> {
        let mut unit = self.partial[class];
        if pages::is_local() {
            for looks in 1.. {
                if unit == NO_SPAN {
                    break;
                }
                // SAFETY: spans on the list are this heap's.
                let Span { node, next, .. } = unsafe { &*span::span(unit as usize) };
                if *node == self.node {
                    break;
                }
                unit = if looks < LOOKS { *next } else { NO_SPAN };
            }
        }
        if unit == NO_SPAN {
            return None;
        }
        self.unlink(unit, class);
        // SAFETY: the span is this heap's.
        unsafe {
            (*span::span(unit as usize)).place = Place::Current;
            (*span::span(unit as usize)).alarm = NO_ALARM;
        }
        Some(unit)
    }

    /// A span of new pages.
    fn fresh(&mut self, class: usize) -> Option<u32> {
        let order = span_order(class);
        let taken = pages::take_span(order).or_else(|| {
            // What this heap keeps of others' may be what is missing.
            self.flush();
            pages::take_span(order)
        });
        let unit = taken?;
        let span = span::span(unit);
        // SAFETY: the block is new and this heap's.
        unsafe {
            (*span).free = null_mut();
            (*span).used = 0;
            (*span).alarm = NO_ALARM;
            (*span).carved = 0;
            (*span).capacity = span_objects(class);
            (*span).size = class_size(class) as u32;
            (*span).class = class as u8;
            (*span).place = Place::Current;
            span::set_room(unit, parcel::room(class));
            span::set_owner(unit, self.id);
        }
        count(&self.counts.spans[class], 1);
        Some(unit as u32)
    }

    /// Puts an object back to its span.
    ///
    /// # Safety
    /// * The object is free, and the span at `unit`, which this heap owns, has it.
    #[inline(always)]
    pub unsafe fn push(&mut self, unit: usize, object: *mut Object) {
        let span = span::span(unit);
        // SAFETY: the caller's promise.
        unsafe {
            link(object, (*span).free);
            (*span).free = object;
            (*span).used -= 1;
            if (*span).used == (*span).alarm {
                self.alarmed(unit);
            }
        }
    }

    /// A full span has a free object, or a partial one is empty.
    #[cold]
    #[inline(never)]
    pub fn alarmed(&mut self, unit: usize) {
        let span = span::span(unit);
        // SAFETY: the span is this heap's.
        unsafe {
            let class = (*span).class as usize;
            if (*span).place == Place::Full {
                self.put_partial(unit as u32, class);
            }
            if (*span).used == 0 && !(self.partial[class] == unit as u32 && (*span).next == NO_SPAN)
            {
                self.release(unit, class);
            }
        }
    }

    /// Gives an empty partial span back to the pages.
    fn release(&mut self, unit: usize, class: usize) {
        self.unlink(unit as u32, class);
        // SAFETY: nothing of it is in use.
        unsafe { pages::give_back(unit) };
    }

    fn put_partial(&mut self, unit: u32, class: usize) {
        let first = self.partial[class];
        let span = span::span(unit as usize);
        // SAFETY: both spans are this heap's.
        unsafe {
            (*span).place = Place::Partial;
            (*span).alarm = 0;
            (*span).next = first;
            (*span).previous = NO_SPAN;
            if first != NO_SPAN {
                (*span::span(first as usize)).previous = unit;
            }
        }
        self.partial[class] = unit;
    }

    fn unlink(&mut self, unit: u32, class: usize) {
        // SAFETY: spans on the list are this heap's.
        unsafe {
            let Span { next, previous, .. } = *span::span(unit as usize);
            if next != NO_SPAN {
                (*span::span(next as usize)).previous = previous;
            }
            if previous == NO_SPAN {
                self.partial[class] = next;
            } else {
                (*span::span(previous as usize)).next = next;
            }
        }
    }

    /// Keeps an object of another heap until there are enough to go home.
    ///
    /// # Safety
    /// * The object is free, and of the span that begins with this unit, which the heap with this id owns.
    pub unsafe fn put_out(&mut self, owner: u16, unit: usize, object: *mut Object) {
        let at = owner as usize % OUTS;
        if self.outs[at].is_for_another(owner) {
            self.send(at);
        }
        // SAFETY: the caller's promise.
        let is_full = unsafe { self.outs[at].put(owner, object, span::room(unit)) };
        count(&self.counts.freed_elsewhere, 1);
        if is_full {
            self.send(at);
        }
    }

    fn send(&mut self, at: usize) {
        let Some(closed) = self.outs[at].close() else { return };
        count(&self.counts.batches, 1);
        if self.node != node_of(closed.owner) {
            count(&self.counts.freed_on_other_node, closed.count.into());
        }
        send_home(&closed);
    }

    /// Sends all home that this heap keeps of others'.
    pub fn flush(&mut self) {
        (0..OUTS).for_each(|at| self.send(at));
        self.collect();
    }

    /// Puts carriers into the inbox. Any thread may.
    ///
    /// # Safety
    /// * The parcel is for this heap.
    unsafe fn receive(heap: *const Heap, closed: &Closed) {
        // SAFETY: heaps are never given back, and this part of them is for all threads.
        let inbox = unsafe { &(*heap).shared.inbox };
        let mut first = inbox.load(Ordering::Relaxed);
        loop {
            // SAFETY: the tail is the caller's until the exchange.
            unsafe { link(closed.tail, first) };
            // Hands the objects over: pairs with the exchange in `collect`. For SeqCst see `is_idle`.
            let put = inbox.compare_exchange_weak(
                first,
                closed.head,
                Ordering::SeqCst,
                Ordering::Relaxed,
            );
            match put {
                Ok(_) => return,
                Err(now) => first = now,
            }
        }
    }

    /// Takes in what other threads freed.
    #[inline]
    pub fn collect(&mut self) {
        if !self.shared.inbox.load(Ordering::SeqCst).is_null() {
            self.collect_all();
        }
    }

    #[inline(never)]
    fn collect_all(&mut self) {
        let mut carrier = self.shared.inbox.swap(null_mut(), Ordering::SeqCst);
        let mut came = 0;
        while !carrier.is_null() {
            let Some(unit) = unit_at(carrier) else { break };
            // SAFETY: what is in the inbox is free and of this heap's spans.
            unsafe {
                let size = (*span::span(unit)).size as usize;
                let behind = next(carrier, size);
                came += parcel::unload(carrier, span::room(unit), |object| {
                    if let Some(unit) = unit_at(object) {
                        self.push(unit, object);
                    }
                });
                if !is_hardened() || hardened::come_home(carrier.addr(), size) {
                    self.push(unit, carrier);
                }
                carrier = behind;
            }
            came += 1;
        }
        count(&self.counts.came_home, came.into());
    }

    /// Puts all lists back to their spans, and gives up current spans.
    pub fn settle(&mut self) {
        for class in 0..CLASSES {
            let unit = std::mem::replace(&mut self.current[class], NO_SPAN);
            if unit == NO_SPAN {
                continue;
            }
            let unit = unit as usize;
            let mut object = std::mem::replace(&mut self.free[class], null_mut());
            let mut back = 0;
            // SAFETY: the list is of the current span's objects, and the span is this heap's.
            unsafe {
                let span = span::span(unit);
                while !object.is_null() {
                    let behind = next(object, class_size(class));
                    link(object, (*span).free);
                    (*span).free = object;
                    (*span).used -= 1;
                    back += 1;
                    object = behind;
                }
                if (*span).free.is_null() && (*span).carved == (*span).capacity {
                    (*span).place = Place::Full;
                    (*span).alarm = (*span).used - 1;
                } else {
                    self.put_partial(unit as u32, class);
                    if (*span).used == 0 {
                        self.release(unit, class);
                    }
                }
            }
            let handed = self.counts.handed[class].load(Ordering::Relaxed);
            self.counts.handed[class].store(handed - back, Ordering::Relaxed);
        }
    }

    /// Gives back every empty span.
    pub fn release_empty(&mut self) {
        for class in 0..CLASSES {
            let mut unit = self.partial[class];
            while unit != NO_SPAN {
                // SAFETY: spans on the list are this heap's.
                let Span { next, used, .. } = unsafe { &*span::span(unit as usize) };
                let (following, is_empty) = (*next, *used == 0);
                if is_empty {
                    self.release(unit as usize, class);
                }
                unit = following;
            }
        }
    }
}

/// The node of a heap by its id.
pub(crate) fn node_of(id: u16) -> u16 {
    let heap = HEAPS[id as usize].load(Ordering::Acquire);
    // SAFETY: heaps are never given back. The node is a word that its thread alone writes; an old one is as good.
    if heap.is_null() { 0 } else { unsafe { (&raw const (*heap).node).read_volatile() } }
}

/// The span of an object, by its first unit.
#[inline]
fn unit_at(object: *mut Object) -> Option<usize> {
    span::unit_of(object.addr()).and_then(span::first_unit)
}

/// Sends a parcel home.
pub(crate) fn send_home(closed: &Closed) {
    let heap = HEAPS[closed.owner as usize].load(Ordering::Acquire);
    // SAFETY: an owner of objects is a heap, heaps are never given back, and the parcel is for it.
    unsafe {
        Heap::receive(heap, closed);
        if (*heap).is_idle() {
            let _pool = POOL.lock();
            if (*heap).is_idle() {
                (*heap).collect();
                (*heap).release_empty();
            }
        }
    }
}
