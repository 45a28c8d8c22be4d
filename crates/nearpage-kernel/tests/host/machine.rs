//! A kernel in a process: threads play its CPUs, an array its memory, and handlers run where interrupts are on.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use nearpage::{
    AddressMap, BuildError, Config, CpuId, FreeError, Model, Node, NodeId, PfnRange, Topology,
    metadata_size,
};
use nearpage_kernel::{Interrupts, Kernel, KernelPlatform, Pages};
use nearpage_slab::ObjectError;

thread_local! {
    static CPU: Cell<u32> = const { Cell::new(0) };
    /// How deep interrupts are off.
    static OFF: Cell<usize> = const { Cell::new(0) };
    /// What runs at an interrupt of this CPU.
    static HANDLER: RefCell<Option<Box<dyn FnMut()>>> = const { RefCell::new(None) };
    /// Moments when interrupts were on, so that every few of them one comes.
    static MOMENTS: Cell<u32> = const { Cell::new(0) };
}

/// Interrupts that came on any CPU.
pub static INTERRUPTS: AtomicU64 = AtomicU64::new(0);
/// Frees that were refused.
pub static MISUSES: AtomicU64 = AtomicU64::new(0);
/// From interrupt to interrupt, in moments when one might come.
const MOMENTS_BETWEEN: u32 = 7;

/// The kernel.
pub struct Played;

/// Where the kernel's memory begins.
static MEMORY: OnceLock<usize> = OnceLock::new();

// SAFETY: each thread plays a CPU of its own number; handlers run at moments when interrupts are on, and nowhere else; what
// is mapped is one array that lives for ever.
unsafe impl Kernel for Played {
    type Rules = nearpage::rules::Places;
    const HARDENED: bool = true;

    fn this_cpu() -> CpuId {
        moment();
        CpuId(CPU.get())
    }

    fn interrupts_off() -> Interrupts {
        moment();
        let before = OFF.get();
        OFF.set(before + 1);
        Interrupts(before)
    }

    fn interrupts_restore(before: Interrupts) {
        OFF.set(before.0);
        moment();
    }

    /// Asked between a look at a quota and the claim that follows.
    fn now_ns() -> u64 {
        moment();
        0
    }

    fn phys_to_virt(address: u64) -> *mut u8 {
        let base = MEMORY.get().copied().unwrap_or(0);
        std::ptr::with_exposed_provenance_mut(base + address as usize)
    }

    fn pause() {
        std::thread::yield_now();
    }

    fn misuse(_error: &FreeError) {
        MISUSES.fetch_add(1, Ordering::Relaxed);
    }

    fn misuse_of_object(_error: &ObjectError) {
        MISUSES.fetch_add(1, Ordering::Relaxed);
    }
}

/// The same kernel, compiled for other rules.
macro_rules! played_by {
    ($(#[$about:meta])* $name:ident, $rules:ident) => {
        $(#[$about])*
        pub struct $name;

        // SAFETY: it is `Played` under another name.
        unsafe impl Kernel for $name {
            type Rules = nearpage::rules::$rules;
            const HARDENED: bool = true;

            fn this_cpu() -> CpuId {
                Played::this_cpu()
            }
            fn interrupts_off() -> Interrupts {
                Played::interrupts_off()
            }
            fn interrupts_restore(before: Interrupts) {
                Played::interrupts_restore(before);
            }
            fn now_ns() -> u64 {
                Played::now_ns()
            }
            fn phys_to_virt(address: u64) -> *mut u8 {
                Played::phys_to_virt(address)
            }
            fn pause() {
                Played::pause();
            }
            fn misuse(error: &FreeError) {
                Played::misuse(error);
            }
        }
    };
}

played_by!(
    /// For rules of which nothing is known when it is compiled.
    PlayedByAny,
    ByModel
);
played_by!(
    /// For Linux's rules, and those of proposals.
    PlayedByLinux,
    Linux
);

/// A moment when interrupts may be on.
fn moment() {
    if OFF.get() > 0 {
        return;
    }
    MOMENTS.set(MOMENTS.get() + 1);
    if !MOMENTS.get().is_multiple_of(MOMENTS_BETWEEN) {
        return;
    }
    // Within a handler no other runs.
    if let Some(mut handler) = HANDLER.take() {
        INTERRUPTS.fetch_add(1, Ordering::Relaxed);
        handler();
        HANDLER.set(Some(handler));
    }
}

/// Plays a CPU from now on.
pub fn run_on(cpu: u32) {
    CPU.set(cpu);
}

/// From now on, runs `handler` at interrupts of this CPU.
pub fn interrupt_by(handler: impl FnMut() + 'static) {
    HANDLER.set(Some(Box::new(handler)));
}

/// No interrupts any more on this CPU.
pub fn no_interrupts() {
    HANDLER.set(None);
    assert_eq!(OFF.get(), 0, "interrupts are on again");
}

/// Pages of each of the two nodes.
pub const NODE_PAGES: u64 = 16_384;

/// Makes the kernel's memory, once.
pub fn memory() {
    MEMORY.get_or_init(|| {
        let bytes = (3 * NODE_PAGES + 1) << 12;
        let memory = vec![0_u8; bytes as usize].leak();
        memory.as_mut_ptr().expose_provenance().next_multiple_of(4096)
    });
}

/// Two nodes of 64 MiB with two CPUs each, and a node of CPU 4 that has no memory: for ever, as a kernel's.
pub fn boot<S>() -> &'static Pages<'static, Played, S>
where
    S: nearpage_slab::ObjectStorage + Default + 'static,
{
    boot_by(Model::NEARPAGE).expect("the rules are those that it was compiled for")
}

/// The same, of a kernel and rules.
pub fn boot_by<K, S>(model: Model) -> Result<&'static Pages<'static, K, S>, BuildError>
where
    K: Kernel,
    S: nearpage_slab::ObjectStorage + Default + 'static,
{
    let memory: &'static [PfnRange] = Box::leak(Box::new([
        PfnRange::new(0, NODE_PAGES),
        PfnRange::new(2 * NODE_PAGES, 3 * NODE_PAGES),
    ]));
    let cpus: &'static [CpuId] = Box::leak((0..5).map(CpuId).collect::<Box<[_]>>());
    let node = |id, memory, cpus| Node { id: NodeId(id), memory, cpus, movable_from: None };
    let nodes: &'static [Node<'static>] = Box::leak(Box::new([
        node(0, &memory[..1], &cpus[..2]),
        node(1, &memory[1..], &cpus[2..4]),
        node(2, &[], &cpus[4..]),
    ]));
    let topology = Topology::new(nodes, &[10, 20, 20, 20, 10, 15, 20, 15, 10], AddressMap::Flat)
        .expect("a machine");
    let config = Config::new().with_model(model);
    let buffer = |node, bytes| {
        let needed = metadata_size::<KernelPlatform<K, S>>(&topology, &config, node);
        assert_eq!(needed, Ok(bytes));
        vec![0; bytes].leak()
    };
    let pages = Pages::<K, S>::new(KernelPlatform::default(), topology, config, buffer)?;
    pages.online_all(memory).expect("all of it is offline");
    Ok(Box::leak(Box::new(pages)))
}

/// Of the tests, which threads run at once, one at a time has the machine: two would play the same CPUs.
pub fn alone() -> impl Drop {
    static MACHINE: Mutex<()> = Mutex::new(());
    struct Alone(#[expect(dead_code, reason = "held until it is dropped")] MutexGuard<'static, ()>);
    impl Drop for Alone {
        fn drop(&mut self) {
            assert_eq!(OFF.get(), 0, "interrupts are on again");
        }
    }
    // A test that failed has told so already.
    Alone(MACHINE.lock().unwrap_or_else(PoisonError::into_inner))
}
