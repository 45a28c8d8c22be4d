//! What is to be measured, and how thoroughly.

use nearpage::{Model, PageblockOwners};
use nearpage_linux::Environment;

use crate::bench::Bench;
use crate::error::{BYTES_MAX, BenchError, SizeError};
use crate::field::Effort;
use crate::work::bulk::SingleLoop;
use crate::work::fragmentation::Shape;
use crate::work::order9;

/// What a [`Run`](crate::Run) measures.
///
/// Without options: all benchmarks that [`Bench::is_usual`] names, in full, with 2 GiB on each node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    benches: Vec<Bench>,
    single_loop: SingleLoop,
    bytes: Option<u64>,
    threads: Option<usize>,
    seed: Option<u64>,
    models: Vec<Model>,
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
            benches: Bench::ALL.into_iter().filter(|bench| bench.is_usual()).collect(),
            single_loop: SingleLoop::Exact,
            bytes: None,
            threads: None,
            seed: None,
            models: Vec::new(),
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

    /// Memory on each node, in bytes: addresses, of which only what is used becomes memory. 2 GiB if nothing is said, and
    /// several sizes in [`Bench::Fragmentation`] and [`Bench::Order9`].
    #[must_use]
    pub fn bytes_per_node(mut self, bytes: u64) -> Self {
        self.bytes = Some(bytes);
        self
    }

    /// Threads in [`Bench::Fragmentation`], which may be more than there are CPUs: one [`Shape`] in place of all.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Where the randomness of [`Bench::Fragmentation`] begins: one [`Shape`] in place of all.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Rules beside nearpage's own, each once, in the benchmarks that [`Bench::compares_models`] names.
    #[must_use]
    pub fn models(mut self, models: &[Model]) -> Self {
        self.models.clear();
        for model in models {
            if *model != Model::NEARPAGE && !self.models.contains(model) {
                self.models.push(*model);
            }
        }
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
    /// [`SizeError::TooLarge`] and [`BenchError::Model`].
    pub fn check(&self) -> Result<(), BenchError> {
        if let Some(model) = self.models.iter().find(|it| it.owners == PageblockOwners::Cpus) {
            return Err(BenchError::Model(model.name));
        }
        match self.bytes {
            Some(bytes) if bytes > BYTES_MAX => {
                Err(BenchError::Size { bytes, why: SizeError::TooLarge })
            }
            _ => Ok(()),
        }
    }

    /// The experiments of [`Bench::Fragmentation`].
    pub(crate) fn shapes(&self) -> Vec<Shape> {
        let is_given = self.threads.is_some() || self.bytes.is_some() || self.seed.is_some();
        let first = if self.is_quick { Shape::QUICK } else { Shape::ALL[0] };
        match is_given || self.is_quick {
            false => Shape::ALL.to_vec(),
            true => vec![Shape {
                threads: self.threads.unwrap_or(first.threads),
                bytes: self.bytes.unwrap_or(first.bytes),
                seed: self.seed.unwrap_or(first.seed),
            }],
        }
    }

    /// The sizes of [`Bench::Order9`].
    pub(crate) fn order9_sizes(&self) -> Vec<u64> {
        match self.bytes {
            Some(bytes) => vec![bytes],
            None if self.is_quick => order9::QUICK_SIZES.to_vec(),
            None => order9::SIZES.to_vec(),
        }
    }

    /// nearpage's own rules and those beside them.
    pub(crate) fn all_models(&self) -> Vec<Model> {
        std::iter::once(Model::NEARPAGE).chain(self.models.iter().copied()).collect()
    }

    pub(crate) fn effort(&self) -> Effort {
        let effort = if self.is_quick { Effort::QUICK } else { Effort::FULL };
        Effort { rounds: self.rounds.unwrap_or(effort.rounds), ..effort }
    }

    pub(crate) fn how_single(&self) -> SingleLoop {
        self.single_loop
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.unwrap_or(BYTES_DEFAULT)
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
    fn what_is_said_of_an_experiment_leaves_one() {
        assert_eq!(Options::default().shapes(), Shape::ALL);
        assert_eq!(Options::default().quick(true).shapes(), [Shape::QUICK]);
        let one = Options::default().threads(3).quick(true).shapes();
        assert_eq!(one, [Shape { threads: 3, ..Shape::QUICK }]);
        let one = Options::default().seed(8).bytes_per_node(1 << 30).shapes();
        assert_eq!(one, [Shape { bytes: 1 << 30, seed: 8, threads: 2 }]);
    }

    #[test]
    fn models_come_once_behind_nearpage_and_some_cannot_be_run() {
        let models = [Model::LINUX_6_18, Model::NEARPAGE, Model::LINUX_6_12, Model::LINUX_6_18];
        let options = Options::default().models(&models);
        let expected = [Model::NEARPAGE, Model::LINUX_6_18, Model::LINUX_6_12];
        assert_eq!(options.all_models(), expected);
        assert!(options.check().is_ok());
        let owned = Options::default().models(&[Model::RFC_2026_OWNED]).check().unwrap_err();
        assert!(owned.to_string().starts_with("rfc-2026-owned: "), "{owned}");
    }

    #[test]
    fn rounds_are_kept_whether_quick_comes_before_or_after() {
        let (one, other) =
            (Options::default().rounds(2).quick(true), Options::default().quick(true).rounds(2));
        assert_eq!(one, other);
        assert_eq!(one.effort(), Effort { rounds: 2, ..Effort::QUICK });
    }
}
