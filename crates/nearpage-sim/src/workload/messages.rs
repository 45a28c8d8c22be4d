//! Message passing: one CPU allocates, another frees. What pagesets cannot balance by themselves.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use nearpage::{CpuId, Gfp, Order, Pfn, Request};

use super::ticks;
use crate::executor::{Deadlock, Tasks};
use crate::sim::Sim;
use crate::world::TaskId;

/// A block of a message.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Block {
    /// Its order.
    pub order: Order,
    /// Every how many messages there is one.
    pub every: u64,
    /// Who frees it.
    pub freed_by: FreedBy,
}

/// Who frees a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FreedBy {
    /// Who received the message.
    Receiver,
    /// Who sent it, when it was received.
    Sender,
}

/// Pairs of CPUs that send each other messages.
#[derive(Clone, Debug)]
pub struct Messages {
    /// The two CPUs of each pair; the first one sends first.
    pub pairs: Vec<(CpuId, CpuId)>,
    /// What each message is made of, in the order of allocations and of frees.
    pub blocks: Vec<Block>,
    /// Messages of each pair.
    pub messages: u64,
    /// After so many messages the two change roles: tasks do not stay where they are for ever.
    pub turn: u64,
    /// Messages that are under way at most.
    pub window: usize,
    /// Time of the sender and of the receiver for each message beside the allocator (ps).
    pub copy_ps: u64,
}

/// What it came to.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct MessagesResult {
    /// Messages received.
    pub messages: u64,
    /// Pages sent and received.
    pub pages: u64,
    /// Blocks that were not to be had.
    pub refused: u64,
    /// From begin to end (ps).
    pub real_ps: u64,
    /// Time that all CPUs together were busy (ps).
    pub busy_ps: u64,
}

struct Message {
    at_ps: u64,
    blocks: Vec<(Pfn, Block)>,
}

/// What the two sides of a pair share.
#[derive(Default)]
struct Channel {
    under_way: VecDeque<Message>,
    /// Blocks for the sender to free.
    acknowledged: Vec<(Pfn, Block)>,
    /// A list of blocks to use again.
    spare: Vec<Vec<(Pfn, Block)>>,
    waiting: Option<TaskId>,
    sent: u64,
    received: u64,
}

struct Pair<'a> {
    channel: RefCell<Channel>,
    work: &'a Messages,
    result: &'a Cell<MessagesResult>,
    working: &'a Cell<usize>,
}

impl Messages {
    /// Runs it.
    ///
    /// # Errors
    /// [`Deadlock`]: that would be a bug here.
    pub fn run(&self, sim: &Sim<'_, '_>) -> Result<MessagesResult, Deadlock> {
        let (result, working) = (Cell::default(), Cell::new(2 * self.pairs.len()));
        let pair = |_| Pair {
            channel: RefCell::default(),
            work: self,
            result: &result,
            working: &working,
        };
        let pairs: Vec<Pair<'_>> = self.pairs.iter().map(pair).collect();
        let mut tasks = Tasks::default();
        for (pair, &(first, second)) in pairs.iter().zip(&self.pairs) {
            tasks.add(first, || pair.play(sim, 0));
            tasks.add(second, || pair.play(sim, 1));
        }
        let idle = sim.world.cpus().last().copied().unwrap_or_default();
        let idle_task = idle_cpu(sim, &self.pairs).unwrap_or(idle);
        ticks::add(&mut tasks, sim, idle_task, &working);
        sim.run(tasks)?;
        Ok(result.get())
    }
}

/// A CPU that no pair uses.
fn idle_cpu(sim: &Sim<'_, '_>, pairs: &[(CpuId, CpuId)]) -> Option<CpuId> {
    let is_used = |cpu: &CpuId| pairs.iter().any(|(first, second)| cpu == first || cpu == second);
    sim.world.cpus().iter().copied().find(|cpu| !is_used(cpu))
}

impl Pair<'_> {
    /// One side of the pair: sends in every other turn.
    fn play(&self, sim: &Sim<'_, '_>, side: u64) {
        let start = sim.world.now_ps();
        let (mut done, mut idle) = (0, 0);
        while done < self.work.messages {
            let turn = self.work.turn.min(self.work.messages - done);
            let sends = (done / self.work.turn) % 2 == side;
            if sends {
                self.send(sim, done + turn, &mut idle)
            } else {
                self.receive(sim, done + turn, &mut idle)
            }
            done += turn;
        }
        let end = sim.world.now_ps();
        let all = self.result.get();
        self.result.set(MessagesResult {
            real_ps: all.real_ps.max(end),
            busy_ps: all.busy_ps + (end - start - idle),
            ..all
        });
        self.working.set(self.working.get() - 1);
    }

    fn send(&self, sim: &Sim<'_, '_>, until: u64, idle: &mut u64) {
        while self.channel.borrow().sent < until {
            sim.world.point();
            sim.world.charge_ps(self.work.copy_ps);
            let number = self.channel.borrow().sent;
            let mut blocks = self.channel.borrow_mut().spare.pop().unwrap_or_default();
            self.fill(sim, number, &mut blocks);
            {
                let mut channel = self.channel.borrow_mut();
                channel.sent += 1;
                channel.under_way.push_back(Message { at_ps: sim.world.now_ps(), blocks });
            }
            self.wake_other(sim);
            self.free_acknowledged(sim);
            while self.channel.borrow().under_way.len() >= self.work.window {
                self.wait(sim, idle);
            }
        }
        // The last message of a turn must be received before the roles change.
        while self.channel.borrow().received < until {
            self.wait(sim, idle);
        }
        self.free_acknowledged(sim);
    }

    fn fill(&self, sim: &Sim<'_, '_>, number: u64, blocks: &mut Vec<(Pfn, Block)>) {
        for &block in self.work.blocks.iter().filter(|block| number.is_multiple_of(block.every)) {
            let request =
                Request::new(block.order, Gfp::KERNEL.union(Gfp::COMP).union(Gfp::NOWARN));
            match sim.allocator.alloc(request) {
                Ok(page) => blocks.push((page, block)),
                Err(_) => {
                    let all = self.result.get();
                    self.result.set(MessagesResult { refused: all.refused + 1, ..all });
                }
            }
        }
    }

    fn receive(&self, sim: &Sim<'_, '_>, until: u64, idle: &mut u64) {
        while self.channel.borrow().received < until {
            sim.world.point();
            let next = self.channel.borrow_mut().under_way.pop_front();
            let Some(mut message) = next else {
                self.wait(sim, idle);
                continue;
            };
            let now = sim.world.now_ps();
            *idle += message.at_ps.saturating_sub(now);
            sim.world.idle_until_ps(message.at_ps);
            sim.world.charge_ps(self.work.copy_ps);
            let mut pages = 0;
            for (page, block) in message.blocks.drain(..) {
                pages += block.order.pages().0;
                match block.freed_by {
                    FreedBy::Receiver => free(sim, page, block.order),
                    FreedBy::Sender => self.channel.borrow_mut().acknowledged.push((page, block)),
                }
            }
            let all = self.result.get();
            let (messages, pages) = (all.messages + 1, all.pages + pages);
            self.result.set(MessagesResult { messages, pages, ..all });
            {
                let mut channel = self.channel.borrow_mut();
                channel.received += 1;
                channel.spare.push(message.blocks);
            }
            self.wake_other(sim);
        }
    }

    fn free_acknowledged(&self, sim: &Sim<'_, '_>) {
        let blocks = std::mem::take(&mut self.channel.borrow_mut().acknowledged);
        for (page, block) in blocks {
            free(sim, page, block.order);
        }
    }

    fn wait(&self, sim: &Sim<'_, '_>, idle: &mut u64) {
        let since = sim.world.now_ps();
        self.channel.borrow_mut().waiting = Some(sim.world.task());
        sim.world.block();
        *idle += sim.world.now_ps() - since;
    }

    fn wake_other(&self, sim: &Sim<'_, '_>) {
        let waiting = self.channel.borrow_mut().waiting.take();
        if let Some(task) = waiting {
            sim.world.wake(task);
        }
    }
}

fn free(sim: &Sim<'_, '_>, page: Pfn, order: Order) {
    sim.allocator.free(page, order).expect("the block was allocated");
}
