//! A platform for one thread: a lock, a clock, and a storage that needs no exclusion.

use std::cell::{Cell, RefCell, RefMut};

use nearpage::platform::{CurrentCpu, Lock, Platform, SerialStorage, Single};
use nearpage::{
    AddressMap, Config, CpuId, Gfp, Node, NodeId, Order, PageAllocator, PfnRange, Request,
    Topology, metadata_size,
};

/// A lock that no other thread can hold.
struct FreeLock<T>(RefCell<T>);

impl<T> Lock<T> for FreeLock<T> {
    type Guard<'a>
        = RefMut<'a, T>
    where
        T: 'a;

    fn new(value: T) -> Self {
        Self(RefCell::new(value))
    }

    fn lock(&self) -> RefMut<'_, T> {
        self.0.borrow_mut()
    }
}

/// The one CPU.
#[derive(Default)]
struct Boot;

impl CurrentCpu for Boot {
    fn current_cpu(&self) -> CpuId {
        CpuId(0)
    }
}

/// The platform.
#[derive(Default)]
struct OneThread {
    storage: SerialStorage<Single<Boot>>,
    ticks: Cell<u64>,
}

impl Platform for OneThread {
    type Lock<T> = FreeLock<T>;
    type Storage = SerialStorage<Single<Boot>>;
    type Rules = nearpage::rules::Places;
    type Waiters = ();

    fn storage(&self) -> &Self::Storage {
        &self.storage
    }

    fn now_ns(&self) -> u64 {
        self.ticks.replace(self.ticks.get() + 1) * 1_000_000
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // 64 MiB of 4 KiB pages.
    let memory = [PfnRange::new(0, 16_384)];
    let cpus = [CpuId(0)];
    let nodes = [Node { id: NodeId(0), memory: &memory, cpus: &cpus, movable_from: None }];
    let topology = Topology::new(&nodes, &[10], AddressMap::Flat)?;
    let (config, mut metadata) = (Config::new(), Vec::new());
    for node in topology.indexes() {
        metadata.push(vec![0; metadata_size::<OneThread>(&topology, &config, node)?]);
    }
    let mut buffers = metadata.iter_mut();
    let next = |_, _| buffers.next().map(Vec::as_mut_slice).unwrap_or_default();
    let pages = PageAllocator::new(OneThread::default(), topology, config, next)?;
    pages.online(memory[0])?;

    let block = pages.alloc(Request::new(Order(3), Gfp::KERNEL))?;
    pages.free(block, Order(3))?;
    assert_eq!(pages.check()?.allocated.0, 0);
    Ok(())
}
