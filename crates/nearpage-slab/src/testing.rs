//! Small machines for tests, with a slab allocator (feature `testing`).

use nearpage::testing::machine::{Buffers, TestMachine};
use nearpage::testing::plain::{HardenedPlatform, Plain, PlainPlatform};
use nearpage::{NodeIndex, PageAllocator, Topology};

use crate::allocator::SlabAllocator;
use crate::config::SlabConfig;
use crate::error::ObjectError;
use crate::platform::SlabPlatform;

/// The slab allocator of a test.
pub type TestSlab<'a, 'm> = SlabAllocator<'a, 'm, PlainPlatform>;

impl<const HARDENED: bool> SlabPlatform for Plain<HARDENED> {
    fn misuse_of_object(&self, _error: &ObjectError) {
        self.misuses.set(self.misuses.get() + 1);
    }
}

/// Tests of a slab allocator, whose [`pages`](SlabAllocator::pages) are those of the machine.
pub trait SlabMachine {
    /// Makes a slab allocator, brings all memory online, calls `f` with it, and walks over everything afterwards.
    ///
    /// # Panics
    /// If there can be no such allocator, or the walk finds something wrong.
    fn run_slab<R>(&self, config: SlabConfig, f: impl FnOnce(&TestSlab<'_, '_>) -> R) -> R;

    /// As [`run_slab`](Self::run_slab), without any memory online.
    ///
    /// # Panics
    /// As [`run_slab`](Self::run_slab).
    fn run_slab_offline<R>(&self, config: SlabConfig, f: impl FnOnce(&TestSlab<'_, '_>) -> R) -> R;

    /// As [`run_slab_offline`](Self::run_slab_offline), on a hardened platform.
    ///
    /// # Panics
    /// As [`run_slab`](Self::run_slab).
    fn run_hardened_slab_offline<R>(
        &self,
        config: SlabConfig,
        f: impl FnOnce(&SlabAllocator<'_, '_, HardenedPlatform>) -> R,
    ) -> R;
}

impl SlabMachine for TestMachine {
    fn run_slab<R>(&self, config: SlabConfig, f: impl FnOnce(&TestSlab<'_, '_>) -> R) -> R {
        self.run_slab_offline(config, |slab| {
            slab.online_all(&self.memory()).expect("memory of the topology, offline until now");
            f(slab)
        })
    }

    fn run_slab_offline<R>(&self, config: SlabConfig, f: impl FnOnce(&TestSlab<'_, '_>) -> R) -> R {
        call(self, config, f)
    }

    fn run_hardened_slab_offline<R>(
        &self,
        config: SlabConfig,
        f: impl FnOnce(&SlabAllocator<'_, '_, HardenedPlatform>) -> R,
    ) -> R {
        call(self, config, f)
    }
}

/// Calls `f` once, and passes its answer on. The compiler makes a copy of this function for each test, and of
/// nothing below it.
fn call<const HARDENED: bool, R>(
    machine: &TestMachine,
    config: SlabConfig,
    f: impl FnOnce(&SlabAllocator<'_, '_, Plain<HARDENED>>) -> R,
) -> R {
    let (mut f, mut answer) = (Some(f), None);
    call_dyn::<HARDENED>(machine, config, &mut |slab| answer = f.take().map(|f| f(slab)));
    answer.expect("it was called")
}

fn call_dyn<const HARDENED: bool>(
    machine: &TestMachine,
    config: SlabConfig,
    f: &mut dyn FnMut(&SlabAllocator<'_, '_, Plain<HARDENED>>),
) {
    let size = |topology: &Topology<'_>, node| {
        config.metadata_size::<Plain<HARDENED>>(topology, node).expect("it has memory")
    };
    machine.run_above::<Plain<HARDENED>>(
        &size,
        &mut |pages: &PageAllocator<'_, _>, mut buffers: Buffers<'_>| {
            let buffer = |node: NodeIndex, _| core::mem::take(&mut buffers[node.0 as usize]);
            let slab =
                SlabAllocator::new(pages, config, buffer).expect("buffers are as large as asked");
            f(&slab);
            pages.check().expect("a test leaves its allocator in order");
            slab.check_all().expect("a test leaves its objects in order");
        },
    );
}
