//! What the environment asks for. Nothing reads it unless it is asked to:
//! [`Environment::from_env`] and [`MemoryBuilder::from_env`](crate::MemoryBuilder::from_env).
//!
//! | variable | value | meaning |
//! |---|---|---|
//! | `NEARPAGE_NUMA` | `off` | one node with all CPUs and memory, as the kernel's `numa=off` |
//! | | `fake=N` | this machine as N emulated nodes of equal shares, as the kernel's `numa=fake=N` |
//! | | `topology=PATH` | the emulated nodes of a file in the [short form](nearpage_machine::description::short_form) |
//! | | `bind=strict`, `bind=advisory`, `bind=none` | the [`BindMode`](crate::BindMode) |
//! | | `strict`, `advisory`, `no-binding` | the same, in the words of tcmalloc |
//! | `NEARPAGE_RSEQ` | `auto` | restartable sequences where there are some |
//! | | `off` | the locked storage |
//! | `NEARPAGE_ENV` | `strict` | what would only be a warning is an error |
//!
//! `NEARPAGE_NUMA` may have several items with commas between them, so a path in it has none. An empty
//! variable is as good as none. What cannot be understood is a [`Warning`](crate::Warning) and ignored. The variables of
//! nearpage's own tests are left to these.
//!
//! A topology file names the CPUs of this machine by their ids. It may name others too, where nobody
//! runs, and leave some out; both are warnings. A size of 0 makes a node memoryless, and other sizes count
//! for nothing: a memory has sizes of its own.

mod asked;
mod error;
mod machine;
mod misread;
mod names;
mod numa;
mod variables;

pub use asked::{Environment, Nodes};
pub use error::EnvironmentError;
