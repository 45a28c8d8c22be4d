//! What is to be measured, and how thoroughly.

use nearpage_linux::Environment;

use crate::bench::Bench;
use crate::error::{BYTES_MAX, BenchError, SizeError};
use crate::field::Effort;
use crate::work::bulk::SingleLoop;

/// What a [`Run`](crate::Run) measures.
///
/// Without options: all benchmarks but [`Bench::Zonelist`], in full, with 2 GiB on each node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    benches: Vec<Bench>,
    single_loop: SingleLoop,
    bytes_per_node: u64,
    rounds: Option<usize>,
    is_quick: bool,
    commit: Option<&'static str>,
    environment: Environment,
}

/// Memory on each node.
const BYTES_DEFAULT: u64 = 2 << 30;

impl Default for Options {
    fn default() -> Self {
        Self {
            benches: Bench::ALL.into_iter().filter(|bench| *bench != Bench::Zonelist).collect(),
            single_loop: SingleLoop::Exact,
            bytes_per_node: BYTES_DEFAULT,
            rounds: None,
            is_quick: false,
            commit: None,
            environment: Environment::default(),
        }
    }
}

impl Options {
    /// Measures these, each once, in the order of [`Bench::ALL`].
    #[must_use]
    pub fn benches(mut self, benches: &[Bench]) -> Self {
        self.benches = Bench::ALL.into_iter().filter(|bench| benches.contains(bench)).collect();
        self
    }

    /// How [`Bench::Bulk`] handles pages one at a time.
    #[must_use]
    pub fn single_loop(mut self, single_loop: SingleLoop) -> Self {
        self.single_loop = single_loop;
        self
    }

    /// Memory on each node, in bytes: addresses, of which only what is used becomes memory.
    #[must_use]
    pub fn bytes_per_node(mut self, bytes: u64) -> Self {
        self.bytes_per_node = bytes;
        self
    }

    /// Rounds that count, 5 if nothing is said; one more comes before them.
    #[must_use]
    pub fn rounds(mut self, rounds: usize) -> Self {
        self.rounds = Some(rounds);
        self
    }

    /// Makes rounds shorter, and holds a tenth of the pages in [`Bench::Random`].
    #[must_use]
    pub fn quick(mut self, is_quick: bool) -> Self {
        self.is_quick = is_quick;
        self
    }

    /// Names the commit that the program was built from, for the description of the machine.
    #[must_use]
    pub fn built_from(mut self, commit: Option<&'static str>) -> Self {
        self.commit = commit;
        self
    }

    /// Makes all memories as an environment asks for: nodes, storage, binding. Nothing is read from that of the process
    /// unless it is given here: [`Environment::from_env`].
    #[must_use]
    pub fn environment(mut self, environment: Environment) -> Self {
        self.environment = environment;
        self
    }

    /// The benchmarks, in the order in which they are measured.
    pub fn chosen(&self) -> &[Bench] {
        &self.benches
    }

    /// Whether any machine could do what is asked for; [`Run::new`](crate::Run::new) asks whether this one can.
    ///
    /// # Errors
    ///
    /// [`SizeError::TooLarge`].
    pub fn check(&self) -> Result<(), BenchError> {
        match self.bytes_per_node {
            bytes if bytes > BYTES_MAX => Err(BenchError::Size { bytes, why: SizeError::TooLarge }),
            _ => Ok(()),
        }
    }

    pub(crate) fn effort(&self) -> Effort {
        let effort = if self.is_quick { Effort::QUICK } else { Effort::FULL };
        Effort { rounds: self.rounds.unwrap_or(effort.rounds), ..effort }
    }

    pub(crate) fn how_single(&self) -> SingleLoop {
        self.single_loop
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes_per_node
    }

    pub(crate) fn asked(&self) -> &Environment {
        &self.environment
    }

    pub(crate) fn commit(&self) -> Option<&'static str> {
        self.commit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn benches_keep_their_order_and_come_once() {
        let options = Options::default().benches(&[Bench::Slab, Bench::Bulk, Bench::Slab]);
        assert_eq!(options.chosen(), [Bench::Bulk, Bench::Slab]);
        assert!(!Options::default().chosen().contains(&Bench::Zonelist));
    }

    #[test]
    fn rounds_are_kept_whether_quick_comes_before_or_after() {
        let (one, other) =
            (Options::default().rounds(2).quick(true), Options::default().quick(true).rounds(2));
        assert_eq!(one, other);
        assert_eq!(one.effort(), Effort { rounds: 2, ..Effort::QUICK });
    }
}
