//! `cargo xtask loom`: the models of the core's protocols, and of the malloc's, in all interleavings.
//!
//! They are tests that exist only with `--cfg loom`. That flag goes to every crate of a build, so
//! these builds have a folder of their own: normal ones are not built anew because of them.

use std::io;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};

use clap::Args;

/// Run the core's protocols, and who has an object of the malloc, in all interleavings: a minute.
#[derive(Args)]
pub struct LoomArgs {
    /// Only models whose names contain this
    filter: Option<String>,
}

/// A package, where its models are, and what their names contain.
type Models = (&'static str, &'static [&'static str], &'static str);

const MODELS: [Models; 4] = [
    ("nearpage", &["--test", "loom"], ""),
    ("nearpage-pagelock", &["--test", "loom"], ""),
    ("nearpage-slab", &["--test", "loom"], ""),
    // Not a core of its own: the features of the first.
    ("nearpage-malloc", &["--lib", "--features", "nearpage/testing"], "models::"),
];

/// Why the models did not hold.
#[derive(Debug, thiserror::Error)]
pub enum LoomError {
    /// Cargo could not be run.
    #[error("cargo: {0}")]
    Cargo(#[from] io::Error),
    /// A model failed, or did not compile.
    #[error("the models failed: {0}")]
    Failed(ExitStatus),
}

/// Builds and runs the models.
///
/// # Errors
///
/// [`LoomError`].
pub fn run(arguments: &LoomArgs) -> Result<(), LoomError> {
    for models in MODELS {
        let status = command(&models, arguments).status()?;
        if !status.success() {
            return Err(LoomError::Failed(status));
        }
    }
    Ok(())
}

fn command((package, target, path): &Models, arguments: &LoomArgs) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["test", "--package", package]).args(*target);
    command.arg("--target-dir").arg(target_dir());
    command.arg(arguments.filter.as_deref().unwrap_or(path));
    // One model at a time, and how many interleavings it had.
    command.args(["--", "--nocapture", "--test-threads=1"]);
    command.env("RUSTFLAGS", "--cfg loom");
    command
}

fn target_dir() -> PathBuf {
    let folder = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    PathBuf::from(folder).join("loom")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_built_apart_and_with_their_flag() {
        let command = command(&MODELS[0], &LoomArgs { filter: Some("page_lock".to_owned()) });
        let arguments: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
        let target = arguments.iter().position(|word| word == "--target-dir").unwrap();
        assert!(arguments[target + 1].ends_with("loom"), "{arguments:?}");
        assert!(arguments.iter().any(|word| word == "page_lock"), "{arguments:?}");
        let flags = command.get_envs().find(|(name, _)| *name == "RUSTFLAGS").unwrap().1;
        assert_eq!(flags, Some("--cfg loom".as_ref()));
    }
}
