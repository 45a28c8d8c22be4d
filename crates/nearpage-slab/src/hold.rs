//! Holding a slab allocator still from outside: for hosts whose memory can be copied while threads run (`fork`).

use nearpage::platform::Lock;

use crate::allocator::SlabAllocator;
use crate::barn::Barn;
use crate::cpu::{CpuStack, SlabCpu};
use crate::lists::Alien;
use crate::node::ListsGuard;
use crate::place::{Cache, CacheInfo, Registry};
use crate::platform::SlabPlatform;
use crate::storage::ObjectStorage;

/// What of a slab allocator threads change; all of it lies in its metadata.
pub struct SlabParts<'m, P: SlabPlatform> {
    registry: &'m P::Lock<Registry>,
    cpus: &'m [Option<SlabCpu<P>>],
    caches: &'m [Cache<'m, P>],
}

impl<P: SlabPlatform> core::fmt::Debug for SlabParts<'_, P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("SlabParts").field("caches", &self.caches.len()).finish_non_exhaustive()
    }
}

/// A piece that is held until this is dropped.
pub struct SlabHeld<'m, P: SlabPlatform + 'm>(Held<'m, P>);

impl<'m, P: SlabPlatform + 'm> core::fmt::Debug for SlabHeld<'m, P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("SlabHeld").finish_non_exhaustive()
    }
}

enum Held<'m, P: SlabPlatform + 'm> {
    Registry(<P::Lock<Registry> as Lock<Registry>>::Guard<'m>),
    Info(<P::Lock<Option<CacheInfo>> as Lock<Option<CacheInfo>>>::Guard<'m>),
    Cpu(StoppedStacks<'m, 'm, P>),
    Alien(<P::Lock<Alien> as Lock<Alien>>::Guard<'m>),
    Barn(<P::Lock<Barn> as Lock<Barn>>::Guard<'m>),
    Lists(ListsGuard<'m, P>),
}

/// A CPU whose stacks nobody uses until this is dropped, by a panic of the host too: it would be stopped for ever.
pub(super) struct StoppedStacks<'s, 'm, P: SlabPlatform + 's> {
    storage: &'s P::Storage,
    caches: &'m [Cache<'m, P>],
    cpu: usize,
    on: Option<<P::Storage as nearpage::platform::Storage>::OnCpu<'s>>,
}

impl<'s, 'm, P: SlabPlatform + 's> StoppedStacks<'s, 'm, P> {
    /// Stops a CPU; `None` if its stacks cannot be had.
    pub(super) fn stop(
        storage: &'s P::Storage,
        caches: &'m [Cache<'m, P>],
        cpu: &'s SlabCpu<P>,
    ) -> Option<Self> {
        let at = cpu.id.0 as usize;
        let on = storage.stop_stacks(cpu.id, &cpu.exclusion, &|each| {
            caches.iter().for_each(|cache| each(&cache.stacks[at].stack));
        })?;
        Some(Self { storage, caches, cpu: at, on: Some(on) })
    }

    /// Calls `each` with the stacks, and the proof that they are the caller's.
    pub(super) fn each(
        &self,
        each: impl Fn(
            &<P::Storage as nearpage::platform::Storage>::OnCpu<'s>,
            &'m Cache<'m, P>,
            &'m CpuStack<'m, P>,
        ),
    ) {
        let Some(on) = &self.on else { return };
        for cache in self.caches {
            each(on, cache, &cache.stacks[self.cpu]);
        }
    }
}

impl<'s, 'm, P: SlabPlatform + 's> Drop for StoppedStacks<'s, 'm, P> {
    fn drop(&mut self) {
        if let Some(on) = self.on.take() {
            self.storage.resume_stacks(on, &|each| {
                self.caches.iter().for_each(|cache| each(&cache.stacks[self.cpu].stack));
            });
        }
    }
}

impl<'m, P: SlabPlatform> SlabAllocator<'_, 'm, P> {
    /// What threads change.
    pub fn parts(&self) -> SlabParts<'m, P> {
        SlabParts { registry: self.registry, cpus: self.cpus, caches: self.caches }
    }
}

impl<'m, P: SlabPlatform> SlabParts<'m, P> {
    /// Takes hold of everything, in the order of locks, and gives each piece to `keep`. To be done before anything
    /// of the page allocator is held, and the pieces dropped in any order after. `wait` is asked whether to go on
    /// trying each time that the stacks of a CPU cannot be had; a CPU given up goes on.
    pub fn hold(
        &self,
        storage: &'m P::Storage,
        mut wait: impl FnMut() -> bool,
        mut keep: impl FnMut(SlabHeld<'m, P>),
    ) {
        let mut keep = |held| keep(SlabHeld(held));
        keep(Held::Registry(self.registry.lock()));
        for cpu in self.cpus.iter().flatten() {
            loop {
                if let Some(stopped) = StoppedStacks::stop(storage, self.caches, cpu) {
                    keep(Held::Cpu(stopped));
                    break;
                }
                if !wait() {
                    break;
                }
            }
        }
        let nodes = || self.caches.iter().flat_map(|cache| cache.nodes);
        for alien in nodes().flat_map(|node| node.aliens()) {
            keep(Held::Alien(alien.1.lock()));
        }
        for barn in nodes().filter_map(|node| node.barn()) {
            keep(Held::Barn(barn.lock()));
        }
        nodes().for_each(|node| keep(Held::Lists(node.look())));
        self.caches.iter().for_each(|cache| keep(Held::Info(cache.info.lock())));
    }
}
