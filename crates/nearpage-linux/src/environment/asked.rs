//! What the environment asks for, as data.

use std::fmt;
use std::num::NonZeroU16;

use nearpage_machine::shown::shown;

use crate::bind::BindMode;
use crate::warning::VariableWarning;

/// What the environment asks for; by default nothing.
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
    /// Whether pagesets use restartable sequences.
    pub use_rseq: Option<bool>,
    /// How memory is bound to its node.
    pub bind: Option<BindMode>,
    /// Which nodes there are.
    pub nodes: Nodes,
    /// Whether a variable that is not understood is an error.
    pub strict: bool,
    /// What is not understood.
    pub ignored: Vec<VariableWarning>,
}

/// Which nodes there are.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Nodes {
    /// Those of the kernel.
    #[default]
    Kernel,
    /// Emulated ones: this many equal shares of this machine.
    Shares(NonZeroU16),
    /// Emulated ones: those that the file at this path describes.
    File(String),
}

impl fmt::Display for Nodes {
    /// The item of `NEARPAGE_NUMA` that asks for them; nothing for those of the kernel.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Nodes::Kernel => Ok(()),
            Nodes::Shares(NonZeroU16::MIN) => f.write_str("off"),
            Nodes::Shares(count) => write!(f, "fake={count}"),
            Nodes::File(path) => write!(f, "topology={}", shown(path)),
        }
    }
}
