//! One run: a machine, an allocator, its model and a number of operations, all made of one seed.

use std::collections::BTreeMap;

use nearpage::Model;
use nearpage::testing::generate::RandomMachine;
use nearpage::testing::naive_allocator::NaiveAllocator;
use nearpage::testing::random::Random;

use crate::compare::Difference;
use crate::host::with_allocator;
use crate::pair::Pair;

/// A machine of more nodes gets a fifth of the operations.
const LARGE: usize = 16;

/// How to run a seed.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The one seed of everything.
    pub seed: u64,
    /// Calls of the allocator.
    pub operations: u64,
    /// The model, if it is not to be any.
    pub model: Option<Model>,
    /// A mistake.
    pub planted: Planted,
    /// How often to compare.
    pub thoroughness: Thoroughness,
}

/// A mistake for the canaries.
#[derive(Clone, Copy, Debug)]
pub enum Planted {
    /// None.
    Nothing,
    /// The allocator loses a block the tenth time that it drains.
    LostBlock,
    /// The model runs under other rules.
    Rules(fn(Model) -> Model),
    /// The model's limits are a page higher.
    LooseLimit,
    /// The model drains no pagesets when a CPU goes off.
    MissingDrain,
}

/// How often to compare more than the answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Thoroughness {
    /// Counters every 64 operations, lists and the walker less often.
    Usual,
    /// Counters and lists after each operation: finds the one that was wrong.
    EachOperation,
}

/// What a run did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Calls of the allocator.
    pub operations: u64,
    /// Pages that it handed out.
    pub pages: u64,
    /// Operations and errors by name.
    pub by_name: BTreeMap<&'static str, u64>,
    /// Folds every answer.
    pub digest: u64,
}

impl Tally {
    /// Adds another run.
    pub fn add(&mut self, other: &Tally) {
        self.operations += other.operations;
        self.pages += other.pages;
        for (name, &count) in &other.by_name {
            self.add_count(name, count);
        }
        self.fold(other.digest);
    }

    /// Counts one more of a name.
    pub fn count(&mut self, name: &'static str) {
        self.add_count(name, 1);
    }

    /// Counts more of a name.
    pub fn add_count(&mut self, name: &'static str, count: u64) {
        *self.by_name.entry(name).or_default() += count;
    }

    /// Folds an answer into the digest.
    pub fn fold(&mut self, answer: u64) {
        self.digest = (self.digest.rotate_left(5) ^ answer).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
}

/// Runs a seed.
///
/// # Errors
/// The first difference between the allocator and its model, or what the walker found.
pub fn run(plan: Plan) -> Result<Tally, Difference> {
    let mut random = Random(plan.seed);
    let machine = match plan.model {
        Some(model) => RandomMachine::of_model(&mut random, model),
        None => RandomMachine::new(&mut random),
    };
    with_allocator(&machine, |allocator| {
        let mut config = machine.config;
        match plan.planted {
            Planted::Nothing | Planted::LooseLimit | Planted::MissingDrain => {}
            Planted::LostBlock => allocator.platform().lose_a_block_in_drain(10),
            Planted::Rules(change) => config.model = change(config.model),
        }
        let naive = NaiveAllocator::new(allocator.topology(), config);
        // An operation may look at all nodes: large machines would take most of the time.
        let is_large = machine.topology.nodes.len() > LARGE;
        let operations = if is_large { plan.operations / 5 } else { plan.operations };
        let pair = Pair::new(&machine, allocator, naive, random);
        let mut tally = pair.run(Plan { operations, ..plan })?;
        tally.add_count(machine.config.model.name, tally.operations);
        Ok(tally)
    })
}
