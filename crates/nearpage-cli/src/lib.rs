//! nearpage on the command line: arguments, text on a terminal, progress, exit codes.
//!
//! The crate is the program `nearpage`. Its library exists so that tests and other programs can call the program's one
//! entry; whatever `nearpage` computes is in the crates below (`nearpage-lab`, `nearpage-replay`, `nearpage-bundle`,
//! `nearpage-linux` and others), whose results are types. Use those from a program of your own: this library prints,
//! reads the environment and takes signals, and nothing of it is promised to stay.
//!
//! ```no_run
//! // As `nearpage topo --format fallback` does.
//! let code = nearpage_cli::commands::run(["nearpage", "topo", "--format", "fallback"].map(Into::into));
//! ```
//!
//! | module | what it has |
//! |---|---|
//! | [`commands`] | [`run`](commands::run()), and a module for each command: what it accepts, and what can go wrong |
//! | `confined` | rights that a command gives up before it reads what a stranger made |
//! | `escaping` | the door for text to standard output |
//! | `memory` | a bound on what a command takes that reads a stranger's file |
//! | `outputs` | the one way in which commands make files, and the process that does it for who gave up the right |
//! | `sudo` | the user who called `sudo` |
//! | `terminal` | notes, errors and progress, on standard error |
//!
//! **Cost and limits.** Linux only. `nearpage --help` says what each command takes; most of them run in seconds. The crate
//! has no features.

pub mod commands;
mod confined;
mod escaping;
mod memory;
mod outputs;
mod sudo;
mod terminal;
