//! What the environment of a process asks for.

mod asked;
mod error;
mod machine;
mod misread;
mod names;
mod numa;
mod variables;

pub use asked::{Environment, Nodes};
pub use error::EnvironmentError;
