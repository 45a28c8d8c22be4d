//! What the environment asks for, and what is told of it.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use nearpage_linux::{Environment, EnvironmentError, Warning};

use crate::terminal;

/// Reads the variables of this process, and tells what is not understood.
///
/// # Errors
///
/// [`EnvironmentError::Strict`].
pub fn read() -> Result<Environment, EnvironmentError> {
    let environment = Environment::from_env()?;
    tell(environment.ignored.iter().cloned().map(Warning::Ignored));
    Ok(environment)
}

/// Tells warnings on standard error, each once in the life of the program: a command may make many memories.
pub fn tell(warnings: impl IntoIterator<Item = Warning>) {
    static TOLD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    for warning in warnings {
        let text = warning.to_string();
        if !told.contains(&text) {
            terminal::note(&text);
            told.insert(text);
        }
    }
}
