//! The host of the comparison: the exact storage, run by one thread on whatever CPU it says, counted
//! callbacks whose answers are prepared, and a mistake that can be planted.

use std::cell::Cell;
use std::mem;

use nearpage::platform::{
    CompactEffort, Compacted, CurrentCpu, EachList, LinkedList, NodeReclaimed, Platform, Pop, Push,
    SerialStorage, Shortage, Single, SingleLock, Storage, ZoneFrames,
};
use nearpage::testing::generate::RandomMachine;
use nearpage::testing::naive_allocator::HostCalls;
use nearpage::{
    CpuId, FreeError, Node, NodeBuf, NodeId, NodeIndex, Order, PageAllocator, PageCount, Topology,
    ZoneKind, metadata_size,
};
use std::sync::atomic::AtomicU32;

/// The host.
#[derive(Default)]
pub struct Host {
    /// Calls so far, and answers prepared.
    pub calls: Cell<HostCalls>,
    /// The time.
    pub now_ns: Cell<u64>,
    storage: LossyStorage,
}

/// Calls `f` with an allocator for the machine, all of whose memory is offline.
pub fn with_allocator<R>(
    machine: &RandomMachine,
    f: impl FnOnce(&PageAllocator<'_, Host>) -> R,
) -> R {
    let nodes: Vec<Node<'_>> = machine.topology.nodes.iter().map(NodeBuf::as_node).collect();
    let (distances, address_map) = (&machine.topology.distances, machine.topology.address_map);
    let topology = Topology::new(&nodes, distances, address_map).expect("machines are legal");
    let size =
        |node| metadata_size::<Host>(&topology, &machine.config, node).expect("machines are legal");
    let mut metadata: Vec<Vec<u8>> = topology.indexes().map(|node| vec![0; size(node)]).collect();
    let mut buffers: Vec<&mut [u8]> = metadata.iter_mut().map(Vec::as_mut_slice).collect();
    let buffer = |node: NodeIndex, _| mem::take(&mut buffers[node.0 as usize]);
    let allocator = PageAllocator::new(Host::default(), topology, machine.config, buffer)
        .expect("buffers are as large as asked");
    f(&allocator)
}

impl Host {
    /// Goes on as `cpu`.
    pub fn run_on(&self, cpu: CpuId) {
        self.storage.exact.0.0.0.set(cpu);
    }

    /// Plants the mistake: the `n`th time from now that blocks are taken for a drain, one gets lost.
    pub fn lose_a_block_in_drain(&self, n: u64) {
        self.storage.loses_in.set(n);
    }

    fn count(&self, change: impl FnOnce(&mut HostCalls)) {
        self.ask(change);
    }

    fn ask<R>(&self, question: impl FnOnce(&mut HostCalls) -> R) -> R {
        let mut calls = self.calls.get();
        let answer = question(&mut calls);
        self.calls.set(calls);
        answer
    }
}

impl Platform for Host {
    type Lock<T> = SingleLock<T>;
    type Storage = LossyStorage;
    type Rules = nearpage::rules::ByModel;
    type Waiters = ();
    const BACKGROUND_RECLAIM: bool = true;
    const COMPACTS: bool = true;

    fn storage(&self) -> &LossyStorage {
        &self.storage
    }

    fn now_ns(&self) -> u64 {
        self.now_ns.get()
    }

    fn wake_reclaim(&self, _shortage: Shortage) {
        self.count(|calls| calls.wakes += 1);
    }

    fn direct_reclaim(&self, _shortage: Shortage) -> PageCount {
        let helps = self.calls.get().reclaims_that_help > 0;
        self.count(|calls| {
            calls.reclaims += 1;
            calls.reclaims_that_help -= u64::from(helps);
        });
        PageCount(helps.into())
    }

    fn reclaimable(&self, _node: NodeId, _kind: ZoneKind) -> PageCount {
        self.calls.get().reclaimable
    }

    fn node_reclaim(&self, _shortage: Shortage) -> NodeReclaimed {
        self.ask(HostCalls::node_reclaim)
    }

    fn compact(&self, _shortage: Shortage, effort: CompactEffort) -> Compacted {
        self.ask(|calls| calls.compact(effort))
    }

    fn out_of_memory(&self, _shortage: Shortage) -> bool {
        let helps = self.calls.get().kills_that_help > 0;
        self.count(|calls| {
            calls.out_of_memory += 1;
            calls.kills_that_help -= u64::from(helps);
        });
        helps
    }

    fn misuse(&self, _error: &FreeError) {
        self.count(|calls| calls.misuses += 1);
    }
}

/// The CPU that the thread pretends to run on.
#[derive(Default)]
pub struct ThisCpu(Cell<CpuId>);

impl CurrentCpu for ThisCpu {
    fn current_cpu(&self) -> CpuId {
        self.0.get()
    }
}

type Exact = SerialStorage<Single<ThisCpu>>;

/// The exact storage, with a block that can get lost.
#[derive(Default)]
pub struct LossyStorage {
    exact: Exact,
    /// Drains until a block is lost; 0: none will be.
    loses_in: Cell<u64>,
}

impl Storage for LossyStorage {
    type List<'m> = LinkedList;
    type PerCpu = ();
    type OnCpu<'a> = ();
    const EXACT: bool = true;

    fn ring_entries(order: Order, high_max: u32) -> u32 {
        Exact::ring_entries(order, high_max)
    }

    fn per_cpu(cpu: CpuId) {
        Exact::per_cpu(cpu);
    }

    fn list(cpu: CpuId, ring: &[AtomicU32]) -> LinkedList {
        Exact::list(cpu, ring)
    }

    fn current_cpu(&self) -> CpuId {
        self.exact.current_cpu()
    }

    fn enter<'a>(&'a self, cpu: CpuId, per_cpu: &'a ()) -> Option<()> {
        self.exact.enter(cpu, per_cpu)
    }

    fn pop(&self, on: &(), list: &LinkedList, frames: &ZoneFrames<'_>) -> Pop {
        self.exact.pop(on, list, frames)
    }

    fn push(&self, on: &(), list: &LinkedList, frames: &ZoneFrames<'_>, number: u32) -> Push {
        self.exact.push(on, list, frames, number)
    }

    fn pop_batch(
        &self,
        on: &(),
        list: &LinkedList,
        frames: &ZoneFrames<'_>,
        out: &mut [u32],
    ) -> usize {
        self.exact.pop_batch(on, list, frames, out)
    }

    fn push_batch(
        &self,
        on: &(),
        list: &LinkedList,
        frames: &ZoneFrames<'_>,
        numbers: &[u32],
    ) -> usize {
        self.exact.push_batch(on, list, frames, numbers)
    }

    fn append_run(
        &self,
        on: &(),
        list: &LinkedList,
        frames: &ZoneFrames<'_>,
        first: u32,
        order: Order,
        blocks: u32,
    ) -> u32 {
        self.exact.append_run(on, list, frames, first, order, blocks)
    }

    fn pop_cold(
        &self,
        on: &(),
        list: &LinkedList,
        frames: &ZoneFrames<'_>,
        out: &mut [u32],
    ) -> usize {
        let taken = self.exact.pop_cold(on, list, frames, out);
        let left = self.loses_in.get();
        if taken == 0 || left == 0 {
            return taken;
        }
        self.loses_in.set(left - 1);
        taken - usize::from(left == 1)
    }

    fn for_each(list: &LinkedList, frames: &ZoneFrames<'_>, each: &mut dyn FnMut(u32)) {
        Exact::for_each(list, frames, each);
    }

    fn stop<'a>(
        &'a self,
        cpu: CpuId,
        per_cpu: &'a (),
        lists: &EachList<'_, LinkedList>,
    ) -> Option<()> {
        self.exact.stop(cpu, per_cpu, lists)
    }

    fn resume(&self, on: (), lists: &EachList<'_, LinkedList>) {
        self.exact.resume(on, lists);
    }
}
