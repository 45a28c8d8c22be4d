//! What the environment asks for, as data.

use std::fmt;
use std::num::NonZeroU16;

use nearpage_machine::shown;

use crate::bind::BindMode;
use crate::warning::VariableWarning;

/// What the environment of a process asks for; the default asks for nothing.
///
/// Nothing reads the environment unless the program asks for it: [`from_env`](Self::from_env),
/// [`MemoryBuilder::from_env`](crate::MemoryBuilder::from_env).
///
/// | variable | value | meaning |
/// |---|---|---|
/// | `NEARPAGE_NUMA` | `off` | one node with all CPUs and memory, as the kernel's `numa=off` |
/// | | `fake=N` | this machine as N emulated nodes of equal shares, as the kernel's `numa=fake=N` |
/// | | `topology=PATH` | the emulated nodes of a file in the [short form](nearpage_machine::short_form) |
/// | | `bind=strict`, `bind=advisory`, `bind=none` | the [`BindMode`] |
/// | | `strict`, `advisory`, `no-binding` | the same, in the words of tcmalloc |
/// | `NEARPAGE_RSEQ` | `auto` | restartable sequences where they are available |
/// | | `off` | the locked storage |
/// | `NEARPAGE_STATS` | a path | the socket of [`stats`](Self::stats); `%p` in it stands for the id of the process |
/// | `NEARPAGE_ENV` | `strict` | a value that is not understood is an error instead of a warning |
///
/// Items of `NEARPAGE_NUMA` are joined with commas, so a path in it has none. An empty variable counts as unset. Values that
/// are not understood are ignored, and listed in [`ignored`](Self::ignored).
///
/// A topology file names the CPUs of this machine by their ids. It may name CPUs that are not there and leave some out; both
/// are [warnings](Self::warnings). A size of 0 makes a node memoryless. Other sizes have no effect: a memory has sizes of its
/// own.
///
/// ```
/// use nearpage_linux::{Environment, Memory};
///
/// let mut environment = Environment::from_env()?;
/// environment.use_rseq = Some(false);
/// let memory = Memory::builder().environment(environment).bytes_per_node(16 << 20).build()?;
/// for warning in memory.warnings() {
///     eprintln!("{warning}");
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Environment {
    /// Whether the CPUs' caches use restartable sequences.
    pub use_rseq: Option<bool>,
    /// How memory is bound to its node.
    pub bind: Option<BindMode>,
    /// Which nodes a memory has.
    pub nodes: Nodes,
    /// Whether a value that is not understood is an error.
    pub strict: bool,
    /// Where the program should serve its figures: a path for `Memory::serve_stats`. A memory alone serves nothing.
    pub stats: Option<String>,
    /// Variables and values that are not understood.
    pub ignored: Vec<VariableWarning>,
}

/// Which nodes a memory has.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Nodes {
    /// The kernel's nodes.
    #[default]
    Kernel,
    /// Emulated nodes: this many equal shares of this machine.
    Shares(NonZeroU16),
    /// Emulated nodes: those that the file at this path describes.
    File(String),
}

impl fmt::Display for Nodes {
    /// The item of `NEARPAGE_NUMA` that asks for these nodes; nothing for the kernel's.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Nodes::Kernel => Ok(()),
            Nodes::Shares(NonZeroU16::MIN) => f.write_str("off"),
            Nodes::Shares(count) => write!(f, "fake={count}"),
            Nodes::File(path) => write!(f, "topology={}", shown(path)),
        }
    }
}
