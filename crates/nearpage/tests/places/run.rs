//! One run: a machine under nearpage's own rules and a number of operations, all made of one seed.

use std::collections::BTreeMap;

use nearpage::Model;
use nearpage::testing::generate::RandomMachine;
use nearpage::testing::random::Random;

use crate::host::with_allocator;
use crate::naive::Wrong;
use crate::play::Play;

/// How to run a seed.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The one seed of everything.
    pub seed: u64,
    /// Operations.
    pub operations: u64,
    /// A mistake.
    pub planted: Planted,
    /// Whether the walker looks after each operation: finds the one that was wrong.
    pub thorough: bool,
}

/// A mistake for the canaries: of the allocator, or of the model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Planted {
    /// None.
    Nothing,
    /// The allocator loses a block the third time that it takes some from a list for its zone.
    LostBlock,
    /// The model forgets a block that the caller holds.
    ForgottenBlock,
    /// The model says that a page is held which nobody has.
    HeldTwice,
    /// Limits are a page lower than the model was told.
    LowerLimit,
    /// One page more must be left free.
    HigherReserve,
}

/// What a run did: operations by name.
pub type Tally = BTreeMap<&'static str, u64>;

/// Runs a seed.
///
/// # Errors
/// What was wrong, and after which operation.
pub fn run(plan: Plan) -> Result<Tally, Wrong> {
    let mut random = Random(plan.seed);
    let machine = RandomMachine::of_model(&mut random, Model::NEARPAGE);
    with_allocator(&machine, |allocator| Play::new(&machine, allocator, random, plan).run())
}
