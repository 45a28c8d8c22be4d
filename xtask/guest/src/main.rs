//! The first process of a machine in which something is recorded, and the loads that it is recorded under.
//!
//! As process 1 it carries out what the file `/orders` says, one order a line ([`orders`]), sends what comes of it
//! through a serial port, and switches the machine off. As `init load FILE` it is a load: the steps of that file, one a
//! line ([`load`]), each in a process of its own.
//!
//! It is built static, for the processor of the machine, by `cargo xtask`.

mod capture;
mod hotplug;
mod load;
mod orders;
mod port;
mod programs;

use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words[..] {
        _ if std::process::id() == 1 => orders::carry_out(),
        ["load", file] => load::run_file(file),
        ["step", ref step @ ..] => load::run_step(step),
        _ => Err("expected load FILE or step NAME ARGUMENTS, or to be process 1".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("guest: {problem}");
            ExitCode::FAILURE
        }
    }
}
