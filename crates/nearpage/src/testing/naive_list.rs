//! A pageset list as anybody would write it down, and the operations that lists have.

use std_alloc::collections::VecDeque;
use std_alloc::vec::Vec;

use crate::pcp::storage::ListCounts;
use crate::pcp::{Pop, Push};
use crate::units::Order;

/// An operation on a list of a pageset.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Operation {
    /// `Storage::pop`.
    Pop,
    /// `Storage::push` of this block.
    Push(u32),
    /// `Storage::pop_batch` of so many.
    PopBatch(usize),
    /// `Storage::push_batch` of these.
    PushBatch(Vec<u32>),
    /// `Storage::append_run` of so many blocks from the first on.
    AppendRun(u32, u32),
    /// `Storage::pop_cold` of so many.
    PopCold(usize),
    /// `CountedList::set_limit`.
    SetLimit(u32),
    /// `Storage::stop`, `pop_cold` until nothing is left, and `resume`.
    Drain,
}

impl Operation {
    /// Whether the answer is an array of blocks.
    pub fn takes(&self) -> bool {
        matches!(self, Self::PopBatch(_) | Self::PopCold(_) | Self::Drain)
    }
}

/// What an operation returned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Of `pop`.
    Popped(Pop),
    /// Of `push`.
    Pushed(Push),
    /// What was taken, in order.
    Taken(Vec<u32>),
    /// How many were put, or what limit was set.
    Number(u32),
}

/// The front is hot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NaiveList {
    order: Order,
    capacity: u32,
    limit: u32,
    blocks: VecDeque<u32>,
    pops: u64,
    pushes: u64,
}

impl NaiveList {
    /// An empty list of blocks of `order` that has room for `capacity`. Without a bound
    /// (`capacity == u32::MAX`) it has no limit either.
    pub fn new(order: Order, capacity: u32) -> Self {
        Self { order, capacity, limit: capacity, blocks: VecDeque::new(), pops: 0, pushes: 0 }
    }

    /// The blocks, hottest first.
    pub fn blocks(&self) -> impl Iterator<Item = u32> {
        self.blocks.iter().copied()
    }

    /// What the list holds and has seen.
    pub fn counts(&self) -> ListCounts {
        ListCounts { count: self.blocks.len() as u32, pops: self.pops, pushes: self.pushes }
    }

    /// Does an operation.
    pub fn apply(&mut self, operation: &Operation) -> Answer {
        match operation {
            Operation::Pop => Answer::Popped(self.pop()),
            Operation::Push(number) => Answer::Pushed(self.push(*number)),
            Operation::PopBatch(most) => Answer::Taken(self.pop_batch(*most)),
            Operation::PushBatch(numbers) => Answer::Number(self.push_batch(numbers)),
            Operation::AppendRun(first, blocks) => Answer::Number(self.append_run(*first, *blocks)),
            Operation::PopCold(most) => Answer::Taken(self.pop_cold(*most)),
            Operation::SetLimit(blocks) => Answer::Number(self.set_limit(*blocks)),
            Operation::Drain => Answer::Taken(self.pop_cold(usize::MAX)),
        }
    }

    fn pop(&mut self) -> Pop {
        let Some(number) = self.blocks.pop_front() else { return Pop::EMPTY };
        self.pops += 1;
        Pop(number)
    }

    fn push(&mut self, number: u32) -> Push {
        if self.blocks.len() as u32 >= self.limit {
            return Push::FULL;
        }
        self.blocks.push_front(number);
        self.pushes += 1;
        Push::DONE
    }

    fn pop_batch(&mut self, most: usize) -> Vec<u32> {
        let taken = self.blocks.drain(..most.min(self.blocks.len())).collect::<Vec<_>>();
        self.pops += taken.len() as u64;
        taken
    }

    fn push_batch(&mut self, numbers: &[u32]) -> u32 {
        let pushed = numbers.iter().take_while(|number| self.push(**number) == Push::DONE);
        pushed.count() as u32
    }

    fn append_run(&mut self, first: u32, blocks: u32) -> u32 {
        let appended = blocks.min(self.capacity - self.blocks.len() as u32);
        let order = self.order.0;
        self.blocks.extend((0..appended).map(|block| first + (block << order)));
        appended
    }

    fn pop_cold(&mut self, most: usize) -> Vec<u32> {
        let left = self.blocks.len() - most.min(self.blocks.len());
        self.blocks.drain(left..).rev().collect()
    }

    fn set_limit(&mut self, blocks: u32) -> u32 {
        if self.capacity < u32::MAX {
            self.limit = blocks.min(self.capacity);
        }
        self.limit
    }
}
