//! A platform for a toy kernel: spin locks that keep interrupts off, and pagesets behind a flag for each CPU. Threads play
//! the CPUs; what a kernel keeps in registers and per-CPU data is kept for each thread.

use std::cell::{Cell, UnsafeCell};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use nearpage::platform::{CurrentCpu, Exclusion, Lock, Platform, SerialStorage};
use nearpage::{
    AddressMap, Config, CpuId, FreeError, Gfp, Node, NodeId, Order, PageAllocator, PfnRange,
    Request, Topology, metadata_size,
};

thread_local! {
    /// A kernel asks the hardware for it.
    static CPU: Cell<u32> = const { Cell::new(0) };
    /// How deep interrupts are switched off. A kernel has a flag of the processor.
    static OFF: Cell<u32> = const { Cell::new(0) };
}

/// Interrupts are off until this is dropped, so that no interrupt handler of this CPU runs.
pub struct InterruptsOff(());

impl InterruptsOff {
    fn new() -> Self {
        OFF.set(OFF.get() + 1);
        Self(())
    }
}

impl Drop for InterruptsOff {
    fn drop(&mut self) {
        OFF.set(OFF.get() - 1);
    }
}

/// A spin lock whose holder has interrupts off: an interrupt handler that wants the lock would wait for ever otherwise.
pub struct SpinLock<T> {
    is_locked: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the lock lets one thread at a time at the value.
unsafe impl<T: Send> Sync for SpinLock<T> {}

/// A spin lock, held.
pub struct SpinGuard<'a, T> {
    lock: &'a SpinLock<T>,
    // Dropped after the lock is released.
    _off: InterruptsOff,
}

impl<T> Lock<T> for SpinLock<T> {
    type Guard<'a>
        = SpinGuard<'a, T>
    where
        T: 'a;

    fn new(value: T) -> Self {
        Self { is_locked: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    fn lock(&self) -> SpinGuard<'_, T> {
        let off = InterruptsOff::new();
        // Acquire pairs with the Release of the holder before.
        while self.is_locked.swap(true, Ordering::Acquire) {
            std::thread::yield_now();
        }
        SpinGuard { lock: self, _off: off }
    }
}

impl<T> Deref for SpinGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: this guard holds the lock.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for SpinGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard holds the lock.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for SpinGuard<'_, T> {
    fn drop(&mut self) {
        self.lock.is_locked.store(false, Ordering::Release);
    }
}

/// What makes a CPU's pagesets exclusive: interrupts off on that CPU, and a flag for those who drain it from elsewhere.
#[derive(Default)]
pub struct ThisCpu;

/// A CPU's pagesets, held.
pub struct HeldCpu<'a> {
    flag: &'a AtomicBool,
    // Dropped after the flag is cleared.
    _off: InterruptsOff,
}

impl Drop for HeldCpu<'_> {
    fn drop(&mut self) {
        self.flag.store(false, Ordering::Release);
    }
}

impl CurrentCpu for ThisCpu {
    fn current_cpu(&self) -> CpuId {
        CpuId(CPU.get())
    }
}

impl Exclusion for ThisCpu {
    type PerCpu = AtomicBool;
    type OnCpu<'a> = HeldCpu<'a>;

    fn enter<'a>(&'a self, flag: &'a AtomicBool) -> Option<HeldCpu<'a>> {
        let off = InterruptsOff::new();
        // Acquire pairs with the Release of the holder before. Nobody waits: who finds the flag set goes to the zone.
        let was_free = !flag.swap(true, Ordering::Acquire);
        was_free.then(|| HeldCpu { flag, _off: off })
    }
}

/// The kernel, as the allocator sees it.
pub struct ToyKernel {
    storage: SerialStorage<ThisCpu>,
    boot: Instant,
}

impl Default for ToyKernel {
    /// A kernel that boots now.
    fn default() -> Self {
        Self { storage: SerialStorage(ThisCpu), boot: Instant::now() }
    }
}

impl Platform for ToyKernel {
    type Lock<T> = SpinLock<T>;
    type Storage = SerialStorage<ThisCpu>;
    type Rules = nearpage::rules::Places;
    type Waiters = ();
    // 4 KiB.
    const PAGE_SHIFT: Option<u32> = Some(12);

    fn storage(&self) -> &Self::Storage {
        &self.storage
    }

    fn now_ns(&self) -> u64 {
        self.boot.elapsed().as_nanos() as u64
    }

    fn misuse(&self, error: &FreeError) {
        panic!("kernel BUG: {error}");
    }
}

/// Plays a CPU from now on.
pub fn run_on(cpu: u32) {
    CPU.set(cpu);
}

/// Two nodes of 64 MiB with two CPUs each, and a node of CPU 4 that has no memory.
pub fn boot(
    work: impl FnOnce(&PageAllocator<'_, ToyKernel>),
) -> Result<(), Box<dyn std::error::Error>> {
    let memory = [PfnRange::new(0, 16_384), PfnRange::new(32_768, 49_152)];
    let cpus = [CpuId(0), CpuId(1), CpuId(2), CpuId(3), CpuId(4)];
    let node = |id, memory, cpus| Node { id: NodeId(id), memory, cpus, movable_from: None };
    let nodes = [
        node(0, &memory[..1], &cpus[..2]),
        node(1, &memory[1..], &cpus[2..4]),
        node(2, &[], &cpus[4..]),
    ];
    let distances = [10, 20, 20, 20, 10, 15, 20, 15, 10];
    let topology = Topology::new(&nodes, &distances, AddressMap::Flat)?;
    let (config, mut metadata) = (Config::new(), Vec::new());
    for node in topology.indexes() {
        // A kernel takes it from the memory of the node, before it hands that memory over.
        metadata.push(vec![0; metadata_size::<ToyKernel>(&topology, &config, node)?]);
    }
    let mut buffers: Vec<&mut [u8]> = metadata.iter_mut().map(Vec::as_mut_slice).collect();
    let buffer = |node: nearpage::NodeIndex, _| std::mem::take(&mut buffers[node.0 as usize]);
    let pages = PageAllocator::new(ToyKernel::default(), topology, config, buffer)?;
    pages.online_all(&memory)?;
    work(&pages);
    pages.check()?;
    Ok(())
}

/// Allocates and frees on every CPU at once.
pub fn main() -> Result<(), Box<dyn std::error::Error>> {
    boot(|pages| {
        std::thread::scope(|threads| {
            for cpu in 0..5 {
                threads.spawn(move || {
                    run_on(cpu);
                    for order in (0..5).cycle().take(1000).map(Order) {
                        let block =
                            pages.alloc(Request::new(order, Gfp::KERNEL)).expect("there is room");
                        pages.free(block, order).expect("it is this thread's");
                    }
                    assert_eq!(OFF.get(), 0, "interrupts are on again");
                });
            }
        });
        pages.drain_all().expect("no thread is at its pagesets");
    })
}
