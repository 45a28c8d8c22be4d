//! What a stress needs of an allocator: a memory, or the bare core on this host with any storage.

use std::ptr::NonNull;

use nearpage::internals::SECTION_FRAMES;
use nearpage::platform::Storage;
use nearpage::stats::{CheckError, Checked};
use nearpage::{
    AddressMap, AllocError, BulkFreeError, Config, CpuId, DrainBusy, FreeError, Node, NodeId,
    Order, PageAllocator, PageCount, Pfn, PfnRange, Request, Topology, metadata_size,
};
use nearpage_linux::Memory;
use nearpage_linux::internals::Host;

/// An allocator that threads use and drain.
pub trait Pages: Sync {
    fn alloc(&self, request: Request) -> Result<Pfn, AllocError>;
    fn alloc_bulk(&self, request: Request, out: &mut [Pfn]) -> Result<usize, AllocError>;
    /// Frees a block whose memory nobody uses any more.
    fn free(&self, first: Pfn, order: Order) -> Result<(), FreeError>;
    /// Frees pages whose memory nobody uses any more.
    fn free_bulk(&self, pages: &[Pfn]) -> Result<(), BulkFreeError>;
    fn drain_all(&self) -> Result<PageCount, DrainBusy>;
    fn drain_cpu(&self, cpu: CpuId) -> Result<PageCount, DrainBusy>;
    fn decay(&self) -> Result<PageCount, DrainBusy>;
    fn check(&self) -> Result<Checked, CheckError>;
    fn vmstat(&self) -> String;
    fn topology(&self) -> &Topology<'_>;
    /// The memory of a frame, if there is any behind it.
    fn address(&self, pfn: Pfn) -> Option<NonNull<u8>>;
}

impl Pages for Memory {
    fn alloc(&self, request: Request) -> Result<Pfn, AllocError> {
        self.alloc_frames(request)
    }

    fn alloc_bulk(&self, request: Request, out: &mut [Pfn]) -> Result<usize, AllocError> {
        self.alloc_frames_bulk(request, out)
    }

    fn free(&self, first: Pfn, order: Order) -> Result<(), FreeError> {
        // SAFETY: nobody uses the memory, as this trait asks.
        unsafe { self.free_frames(first, order) }
    }

    fn free_bulk(&self, pages: &[Pfn]) -> Result<(), BulkFreeError> {
        // SAFETY: nobody uses the memory, as this trait asks.
        unsafe { self.free_frames_bulk(pages) }
    }

    fn drain_all(&self) -> Result<PageCount, DrainBusy> {
        self.drain_all()
    }

    fn drain_cpu(&self, cpu: CpuId) -> Result<PageCount, DrainBusy> {
        self.drain_cpu(cpu)
    }

    fn decay(&self) -> Result<PageCount, DrainBusy> {
        self.decay()
    }

    fn check(&self) -> Result<Checked, CheckError> {
        self.check()
    }

    fn vmstat(&self) -> String {
        self.vmstat()
    }

    fn topology(&self) -> &Topology<'_> {
        self.topology()
    }

    fn address(&self, pfn: Pfn) -> Option<NonNull<u8>> {
        Some(self.address(pfn))
    }
}

/// The core on this host with any storage, and no memory behind its frames.
pub type Core<S> = PageAllocator<'static, Host<S, false>>;

/// An allocator of one node with `pages` pages for these CPUs. It is never freed.
pub fn core<S: Storage>(storage: S, cpus: &[CpuId], pages: PageCount) -> Core<S> {
    let memory = PfnRange::new(SECTION_FRAMES as u64, SECTION_FRAMES as u64 + pages.0);
    let node = Node {
        id: NodeId(0),
        memory: vec![memory].leak(),
        cpus: cpus.to_vec().leak(),
        movable_from: None,
    };
    let topology = Topology::new(vec![node].leak(), &[10], AddressMap::Flat).unwrap();
    let host = Host::bare(storage);
    let config = Config::default();
    let size = |node| metadata_size::<Host<S, false>>(&topology, &config, node).unwrap();
    let buffer = |node, bytes| {
        assert_eq!(size(node), bytes);
        vec![0; bytes].leak()
    };
    let allocator = PageAllocator::new(host, topology, config, buffer).unwrap();
    allocator.online(memory).unwrap();
    allocator
}

impl<S: Storage + Sync> Pages for Core<S> {
    fn alloc(&self, request: Request) -> Result<Pfn, AllocError> {
        self.alloc(request)
    }

    fn alloc_bulk(&self, request: Request, out: &mut [Pfn]) -> Result<usize, AllocError> {
        self.alloc_bulk(request, out)
    }

    fn free(&self, first: Pfn, order: Order) -> Result<(), FreeError> {
        self.free(first, order)
    }

    fn free_bulk(&self, pages: &[Pfn]) -> Result<(), BulkFreeError> {
        self.free_bulk(pages)
    }

    fn drain_all(&self) -> Result<PageCount, DrainBusy> {
        self.drain_all()
    }

    fn drain_cpu(&self, cpu: CpuId) -> Result<PageCount, DrainBusy> {
        self.drain_cpu(cpu)
    }

    fn decay(&self) -> Result<PageCount, DrainBusy> {
        self.cpus()
            .try_fold(PageCount(0), |sum, (cpu, ..)| Ok(PageCount(sum.0 + self.decay_cpu(cpu)?.0)))
    }

    fn check(&self) -> Result<Checked, CheckError> {
        self.check()
    }

    fn vmstat(&self) -> String {
        let mut text = String::new();
        self.write_vmstat(&mut text).unwrap();
        text
    }

    fn topology(&self) -> &Topology<'_> {
        self.topology()
    }

    fn address(&self, _: Pfn) -> Option<NonNull<u8>> {
        None
    }
}
