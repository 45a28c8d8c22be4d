//! The `nearpage` command.

use std::process::ExitCode;

use nearpage_cli::memory::Bounded;

#[global_allocator]
static ALLOCATOR: Bounded = Bounded;

fn main() -> ExitCode {
    nearpage_cli::commands::run(std::env::args_os())
}
