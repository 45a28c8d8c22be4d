//! Checks and recordings: `cargo xtask COMMAND`.

mod census;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Checks and recordings of the nearpage project.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Count the instructions of one allocation and one free, with valgrind
    Census,
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Census => census::run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}
