//! A thread of a stress: allocates, checks, frees.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use nearpage::testing::random::Random;
use nearpage::{AllocError, Gfp, NodeId, Order, PageCount, Pfn, Request};

use super::pages::Pages;
use super::shadow::{Block, Shadow};

/// Most pages of a bulk: more than one look at a pageset takes.
const BULK_MOST: u64 = 600;
/// Steps between two turns of the tide.
const TIDE_STEPS: u64 = 3000;

/// What threads share.
pub struct Shared<'a, P> {
    pub pages: &'a P,
    pub shadow: &'a Shadow,
    /// Blocks that change hands: who takes one frees it.
    pub exchange: &'a Mutex<Vec<Block>>,
    /// Pages that each thread may hold.
    pub pages_most: PageCount,
    pub stop: &'a AtomicBool,
}

/// What a thread did.
#[derive(Clone, Copy, Default, Debug)]
pub struct Tally {
    pub operations: u64,
    /// Blocks, as `numa_hit` and `numa_miss` count them.
    pub allocations: u64,
    pub pages_allocated: u64,
    pub pages_freed: u64,
    /// Requests that found no memory.
    pub refused: u64,
}

/// A thread.
pub struct Worker<'a, P> {
    shared: &'a Shared<'a, P>,
    random: Random,
    /// The upper bits of its stamps.
    number: u32,
    stamps: u32,
    held: Vec<Block>,
    pages_held: u64,
    rising: bool,
    tally: Tally,
}

impl<'a, P: Pages> Worker<'a, P> {
    /// Thread `number` of at most 255.
    pub fn new(shared: &'a Shared<'a, P>, number: u32, seed: u64) -> Self {
        let random = Random(seed.wrapping_mul(1000) + number as u64);
        let (held, tally) = (Vec::new(), Tally::default());
        Self { shared, random, number, stamps: 0, held, pages_held: 0, rising: true, tally }
    }

    /// Works until it is told to stop, then frees all.
    pub fn run(mut self) -> Result<Tally, String> {
        while !self.shared.stop.load(Ordering::Relaxed) {
            self.step()?;
        }
        while !self.held.is_empty() {
            self.free_one()?;
        }
        Ok(self.tally)
    }

    fn step(&mut self) -> Result<(), String> {
        self.tally.operations += 1;
        if self.random.below(TIDE_STEPS) == 0 {
            self.rising = !self.rising;
        }
        if self.pages_held > self.shared.pages_most.0 {
            self.rising = false;
        }
        let allocates = self.random.below(100) < if self.rising { 70 } else { 30 };
        match (allocates, self.random.below(100)) {
            (true, ..5) => self.alloc_bulk(),
            (true, _) => self.alloc_one(),
            (false, ..5) => self.free_bulk(),
            (false, ..15) => self.exchange(),
            (false, _) => self.free_one(),
        }
    }

    fn request(&mut self) -> Request {
        let orders = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4];
        let order = if self.random.below(200) == 0 { 9 } else { self.random.one_of(&orders) };
        let movable = Gfp::HIGHUSER_MOVABLE;
        let gfp = self.random.one_of(&[movable, movable, Gfp::KERNEL, Gfp::KERNEL, Gfp::ATOMIC]);
        let request = Request::new(Order(order), gfp);
        let nodes = self.shared.pages.topology().nodes();
        let node = nodes[self.random.below(nodes.len() as u64) as usize].id;
        match self.random.below(10) {
            0 => Request { gfp: gfp.union(Gfp::THISNODE), ..request.on(node) },
            1 | 2 => request.on(node),
            _ => request,
        }
    }

    fn alloc_one(&mut self) -> Result<(), String> {
        let request = self.request();
        match self.shared.pages.alloc(request) {
            Ok(first) => self.take(request, first, request.order),
            Err(error) => self.refused(request, error),
        }
    }

    fn alloc_bulk(&mut self) -> Result<(), String> {
        let request = Request { order: Order(0), ..self.request() };
        let mut pages = [Pfn(0); BULK_MOST as usize];
        let most = 1 + self.random.below(BULK_MOST) as usize;
        match self.shared.pages.alloc_bulk(request, &mut pages[..most]) {
            Ok(got) => pages[..got].iter().try_for_each(|&pfn| self.take(request, pfn, Order(0))),
            Err(error) => self.refused(request, error),
        }
    }

    fn take(&mut self, request: Request, first: Pfn, order: Order) -> Result<(), String> {
        self.stamps = self.stamps % 0xff_ffff + 1;
        let block = Block { first, order, stamp: self.number << 24 | self.stamps };
        self.shared.shadow.take(self.shared.pages, block)?;
        let strays = request.gfp.contains(Gfp::THISNODE) && self.node_of(first) != request.node;
        if strays {
            return Err(format!("{request:?} got {block:x?} of node {:?}", self.node_of(first)));
        }
        self.tally.allocations += 1;
        self.tally.pages_allocated += order.pages().0;
        self.hold(block);
        Ok(())
    }

    fn node_of(&self, pfn: Pfn) -> Option<NodeId> {
        let topology = self.shared.pages.topology();
        Some(topology.node(topology.node_of_pfn(pfn)?).id)
    }

    fn hold(&mut self, block: Block) {
        self.pages_held += block.order.pages().0;
        self.held.push(block);
    }

    fn refused(&mut self, request: Request, error: AllocError) -> Result<(), String> {
        match error {
            AllocError::OutOfMemory { .. } | AllocError::MemorylessNode { .. } => {
                self.tally.refused += 1;
                // Those who hold pages give some back, so that it does not stay so.
                self.rising = false;
                Ok(())
            }
            error => Err(format!("{request:?}: {error}")),
        }
    }

    /// A block that this thread holds, and no longer does.
    fn any_block(&mut self) -> Option<Block> {
        if self.held.is_empty() {
            return None;
        }
        let at = self.random.below(self.held.len() as u64) as usize;
        let block = self.held.swap_remove(at);
        self.pages_held -= block.order.pages().0;
        Some(block)
    }

    fn free_one(&mut self) -> Result<(), String> {
        let Some(block) = self.any_block() else { return Ok(()) };
        self.give(block)?;
        let freed = self.shared.pages.free(block.first, block.order);
        freed.map_err(|error| format!("{block:x?}: {error}"))
    }

    fn give(&mut self, block: Block) -> Result<(), String> {
        self.tally.pages_freed += block.order.pages().0;
        self.shared.shadow.give(self.shared.pages, block)
    }

    fn free_bulk(&mut self) -> Result<(), String> {
        let most = self.random.below(BULK_MOST);
        let mut pages = Vec::new();
        for _ in 0..most {
            let Some(block) = self.any_block() else { break };
            if block.order > Order(0) {
                self.hold(block);
                continue;
            }
            self.give(block)?;
            pages.push(block.first);
        }
        self.shared.pages.free_bulk(&pages).map_err(|error| format!("bulk: {error}"))
    }

    /// Leaves a block to another thread and takes one of theirs.
    fn exchange(&mut self) -> Result<(), String> {
        let Some(block) = self.any_block() else { return Ok(()) };
        let theirs = {
            let mut exchange = self.shared.exchange.lock().unwrap();
            exchange.push(block);
            let at = self.random.below(exchange.len() as u64) as usize;
            exchange.swap_remove(at)
        };
        self.hold(theirs);
        Ok(())
    }
}
