//! Freed objects on their way to the heap that owns them.
//!
//! A *parcel* is a list of *carriers*. A carrier is a freed object that holds, behind its link, the addresses of others:
//!
//! ```text
//! word      0                 1         2         ...                room
//! carrier   next carrier      address   address   null, if it is not full
//! ```
//!
//! So a thread that frees objects of 64 bytes writes to one in eight. The others stay in the cache of the CPU that allocated
//! them, where they are wanted next. An object of 16 bytes has room for one address.
//!
//! In hardened mode there is no room: the second word is the check of the link, and each object is a carrier.

use std::ptr::null_mut;

use crate::classes::class_size;
use crate::link::{Object, is_hardened, link};

/// Objects that go home at a time.
const BATCH: u32 = 64;

/// Objects of one heap that another thread freed.
pub(crate) struct Parcel {
    owner: u16,
    count: u32,
    /// Addresses that the first carrier can still take, and where the next one goes.
    left: u16,
    place: *mut *mut Object,
    head: *mut Object,
    tail: *mut Object,
}

/// A parcel that is closed.
pub(crate) struct Closed {
    pub owner: u16,
    pub count: u32,
    /// The first and the last carrier.
    pub head: *mut Object,
    pub tail: *mut Object,
}

/// Addresses that an object of a class can carry.
pub(crate) fn room(class: usize) -> u16 {
    if is_hardened() {
        return 0;
    }
    (class_size(class) / size_of::<usize>() - 1).min(BATCH as usize - 1) as u16
}

impl Parcel {
    /// Whether an object of this heap must wait until the parcel has gone.
    #[inline]
    pub fn is_for_another(&self, owner: u16) -> bool {
        self.count != 0 && self.owner != owner
    }

    /// Puts an object in; `true` if the parcel should go now.
    ///
    /// # Safety
    /// * The object is free, and the caller's, of a span of the heap with this id and of a class with this room.
    /// * The parcel is not for another heap.
    #[inline]
    pub unsafe fn put(&mut self, owner: u16, object: *mut Object, room: u16) -> bool {
        // SAFETY: the carrier is the caller's since it came, and has so much room; the object's promise is the caller's.
        unsafe {
            if self.left == 0 {
                self.begin_carrier(owner, object, room);
            } else {
                *self.place = object;
                self.place = self.place.add(1);
                self.left -= 1;
            }
        }
        self.count += 1;
        self.count >= BATCH
    }

    /// # Safety
    /// * As [`put`](Self::put).
    #[inline]
    unsafe fn begin_carrier(&mut self, owner: u16, object: *mut Object, room: u16) {
        if self.count == 0 {
            self.owner = owner;
            self.head = null_mut();
            self.tail = object;
        }
        // SAFETY: the caller's promise.
        unsafe { link(object, self.head) };
        self.head = object;
        self.left = room;
        self.place = words(object);
    }

    /// Takes what is in it out; `None` if that is nothing.
    pub fn close(&mut self) -> Option<Closed> {
        let &mut Parcel { owner, count, left, place, head, tail } = self;
        if count == 0 {
            return None;
        }
        if left != 0 {
            // SAFETY: the carrier has room for one more.
            unsafe { *place = null_mut() };
        }
        (self.count, self.left) = (0, 0);
        Some(Closed { owner, count, head, tail })
    }
}

impl Closed {
    /// A parcel of one object.
    ///
    /// # Safety
    /// * As [`Parcel::put`].
    pub unsafe fn of_one(owner: u16, object: *mut Object, room: u16) -> Self {
        // SAFETY: the caller's promise.
        unsafe {
            link(object, null_mut());
            if room != 0 {
                *words(object) = null_mut();
            }
        }
        Self { owner, count: 1, head: object, tail: object }
    }
}

/// Gives each object that a carrier has the address of to `take`; returns how many those were.
///
/// # Safety
/// * The object is a carrier of a parcel that came home, of a class with this room. `take` leaves it alone.
#[inline]
pub(crate) unsafe fn unload(
    carrier: *mut Object,
    room: u16,
    mut take: impl FnMut(*mut Object),
) -> u32 {
    for at in 0..room {
        // SAFETY: the carrier has so many words, and those before a null were written.
        let object = unsafe { *words(carrier).add(at.into()) };
        if object.is_null() {
            return at.into();
        }
        take(object);
    }
    room.into()
}

/// The words behind the link.
fn words(carrier: *mut Object) -> *mut *mut Object {
    carrier.cast::<*mut Object>().wrapping_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Parcel = Parcel {
        owner: 0,
        count: 0,
        left: 0,
        place: null_mut(),
        head: null_mut(),
        tail: null_mut(),
    };

    /// All that comes out of a closed parcel.
    fn unloaded(closed: &Closed, room: u16) -> Vec<usize> {
        let mut out = Vec::new();
        let mut carrier = closed.head;
        while !carrier.is_null() {
            // SAFETY: each carrier is one of the test's blocks.
            unsafe {
                let count = unload(carrier, room, |object| out.push(object.addr()));
                assert!(count <= room.into(), "a carrier has no more than there is room for");
                out.push(carrier.addr());
                assert_eq!((*carrier.cast::<*mut Object>()).is_null(), carrier == closed.tail);
                carrier = *carrier.cast();
            }
        }
        out
    }

    #[test]
    fn what_goes_in_comes_out_for_every_class_and_count() {
        for class in 0..crate::classes::CLASSES {
            let (words, room) = (class_size(class) / size_of::<usize>(), room(class));
            // What was in the objects before must not count as addresses.
            let mut memory = vec![usize::MAX; words * BATCH as usize];
            // Miri takes minutes for all.
            for count in (1..=BATCH).filter(|count| !cfg!(miri) || [1, 2, 9, BATCH].contains(count))
            {
                memory.fill(usize::MAX);
                let mut parcel = NONE;
                let start = memory.as_mut_ptr();
                let objects: Vec<*mut Object> =
                    (0..count as usize).map(|at| start.wrapping_add(at * words).cast()).collect();
                for (at, object) in objects.iter().enumerate() {
                    // SAFETY: the objects are the test's, and as long as their class.
                    let is_full = unsafe { parcel.put(7, *object, room) };
                    assert_eq!(is_full, at as u32 + 1 == BATCH);
                }
                assert!(parcel.is_for_another(8) && !parcel.is_for_another(7));
                let closed = parcel.close().expect("there is something in it");
                assert!(!parcel.is_for_another(8) && parcel.close().is_none());
                assert_eq!((closed.owner, closed.count), (7, count));
                let mut out = unloaded(&closed, room);
                out.sort_unstable();
                let put: Vec<usize> = objects.iter().map(|object| object.addr()).collect();
                assert_eq!(out, put, "class {class}, {count} objects");
            }
        }
    }

    #[test]
    fn one_object_alone_carries_nothing() {
        let mut memory = [usize::MAX; 8];
        let object: *mut Object = memory.as_mut_ptr().cast();
        for room in [0, 1, 7] {
            // SAFETY: the object is the test's.
            let closed = unsafe { Closed::of_one(3, object, room) };
            assert_eq!(unloaded(&closed, room), [object.addr()]);
        }
    }
}
