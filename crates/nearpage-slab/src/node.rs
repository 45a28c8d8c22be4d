//! A cache on a node: its lists and alien stacks, with what they count.

use core::sync::atomic::{AtomicU32, Ordering};

use nearpage::NodeIndex;
use nearpage::platform::{Lock, Platform};

use crate::barn::Barn;
use crate::events::NodeEvents;
use crate::lists::{Alien, Lists};

/// The part of a cache that belongs to a node. It lies in the memory of that node.
pub(super) struct CacheNode<'m, P: Platform> {
    lists: P::Lock<Lists>,
    /// [`Lists::objects_free`], for those who look before they take the lock.
    objects_free: AtomicU32,
    colour_next: AtomicU32,
    far: Far<'m, P>,
    pub(super) events: NodeEvents,
}

/// What stands between CPUs and lists under locks of its own, by the rules.
pub(super) enum Far<'m, P: Platform> {
    /// By node index: objects of that node, freed by CPUs of this one.
    Aliens(&'m [P::Lock<Alien>]),
    /// Full sheaves of the CPUs of this node.
    Barn(&'m P::Lock<Barn>),
}

/// The lists of a node, until it is dropped.
pub(super) struct ListsGuard<'a, P: Platform + 'a> {
    guard: <P::Lock<Lists> as Lock<Lists>>::Guard<'a>,
    objects_free: &'a AtomicU32,
}

impl<P: Platform> Clone for Far<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Platform> Copy for Far<'_, P> {}

impl<'m, P: Platform> CacheNode<'m, P> {
    pub(super) fn new(far: Far<'m, P>) -> Self {
        let (objects_free, colour_next) = (AtomicU32::new(0), AtomicU32::new(0));
        let (lists, events) = (P::Lock::new(Lists::new()), NodeEvents::default());
        Self { lists, objects_free, colour_next, far, events }
    }

    /// Takes the list lock.
    pub(super) fn lock(&self) -> ListsGuard<'_, P> {
        let guard = self.lists.lock();
        self.events.list_locks.add(1);
        ListsGuard { guard, objects_free: &self.objects_free }
    }

    /// Takes the list lock without counting it: for those who only look.
    pub(super) fn look(&self) -> ListsGuard<'_, P> {
        ListsGuard { guard: self.lists.lock(), objects_free: &self.objects_free }
    }

    /// The colour of the next slab, of so many. Two that ask at once may get the same one.
    pub(super) fn next_colour(&self, colours: u32) -> u32 {
        let colour = self.colour_next.load(Ordering::Relaxed);
        let next = if colour + 1 >= colours { 0 } else { colour + 1 };
        self.colour_next.store(next, Ordering::Relaxed);
        colour
    }

    /// Begins with the first colour.
    pub(super) fn begin_colours(&self) {
        self.colour_next.store(0, Ordering::Relaxed);
    }

    /// Whether objects lie in slabs here; the next moment they may not.
    pub(super) fn has_objects(&self) -> bool {
        self.objects_free.load(Ordering::Relaxed) > 0
    }

    /// The stack for objects of `home`, if there are alien stacks.
    pub(super) fn alien(&self, home: NodeIndex) -> Option<&'m P::Lock<Alien>> {
        match self.far {
            Far::Aliens(aliens) => aliens.get(home.0 as usize),
            Far::Barn(_) => None,
        }
    }

    /// The place for a barn, if there are barns.
    pub(super) fn barn(&self) -> Option<&'m P::Lock<Barn>> {
        match self.far {
            Far::Aliens(_) => None,
            Far::Barn(barn) => Some(barn),
        }
    }

    /// All alien stacks, with the nodes that their objects are of.
    pub(super) fn aliens(&self) -> impl Iterator<Item = (NodeIndex, &'m P::Lock<Alien>)> {
        let aliens: &'m [P::Lock<Alien>] = match self.far {
            Far::Aliens(aliens) => aliens,
            Far::Barn(_) => &[],
        };
        aliens.iter().enumerate().map(|(at, alien)| (NodeIndex(at as u16), alien))
    }
}

impl<'a, P: Platform + 'a> core::ops::Deref for ListsGuard<'a, P> {
    type Target = Lists;

    fn deref(&self) -> &Lists {
        &self.guard
    }
}

impl<'a, P: Platform + 'a> core::ops::DerefMut for ListsGuard<'a, P> {
    fn deref_mut(&mut self) -> &mut Lists {
        &mut self.guard
    }
}

impl<'a, P: Platform + 'a> Drop for ListsGuard<'a, P> {
    fn drop(&mut self) {
        self.objects_free.store(self.guard.objects_free, Ordering::Relaxed);
    }
}
