//! The `nearpage` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    nearpage_cli::commands::run(std::env::args_os())
}
