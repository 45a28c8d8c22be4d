//! Checks and recordings: `cargo xtask COMMAND`.

mod api;
mod book;
mod census;
mod dist;
mod guest;
mod install;
mod kernel;
mod lines;
mod loom;
mod miri;
mod opponents;
mod ostd;
mod pages;
mod pairs;
mod plots;
mod programs;
mod python;
mod record;
mod soak;
mod step;
mod tied;
mod web;

use std::error::Error;
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
    Api(api::ApiArgs),
    Book(book::BookArgs),
    BundleRecord(record::BundleArgs),
    /// Count the instructions of one allocation and one free, with valgrind
    Census,
    Dist(dist::DistArgs),
    Guest(guest::GuestArgs),
    Install(install::InstallArgs),
    Kernel(kernel::KernelArgs),
    /// Count lines of Rust by package and concern, tests apart: some seconds
    Lines,
    Loom(loom::LoomArgs),
    /// Run the core's unsafe files and its page locks under Miri: minutes; needs a dated nightly
    Miri,
    Opponents(opponents::OpponentsArgs),
    OracleRecord(record::OracleArgs),
    Ostd(ostd::OstdArgs),
    /// Open pages of HTML in Chromium, and compare what they show with the JSON of the same command: seconds
    Pages,
    Pairs(pairs::PairsArgs),
    /// Draw the plots of the book anew: minutes
    Plots,
    Programs(programs::ProgramsArgs),
    Python(python::PythonArgs),
    Soak(soak::SoakArgs),
    Web(web::WebArgs),
}

fn main() -> ExitCode {
    let result: Result<(), Box<dyn Error>> = match Cli::parse().command {
        Command::Api(arguments) => api::run(&arguments).map_err(Into::into),
        Command::Book(arguments) => book::run(&arguments).map_err(Into::into),
        Command::BundleRecord(arguments) => record::run_bundle(&arguments).map_err(Into::into),
        Command::Census => census::run().map_err(Into::into),
        Command::Dist(arguments) => dist::run(&arguments).map_err(Into::into),
        Command::Guest(arguments) => guest::run(&arguments).map_err(Into::into),
        Command::Install(arguments) => install::install(&arguments).map_err(Into::into),
        Command::Kernel(arguments) => kernel::run(&arguments).map_err(Into::into),
        Command::Lines => lines::run().map_err(Into::into),
        Command::Loom(arguments) => loom::run(&arguments).map_err(Into::into),
        Command::Miri => miri::run().map_err(Into::into),
        Command::Opponents(arguments) => opponents::run(&arguments).map_err(Into::into),
        Command::OracleRecord(arguments) => record::run_oracle(&arguments).map_err(Into::into),
        Command::Ostd(arguments) => ostd::run(&arguments).map_err(Into::into),
        Command::Pages => pages::run().map_err(Into::into),
        Command::Pairs(arguments) => pairs::run(&arguments).map_err(Into::into),
        Command::Plots => plots::run().map_err(Into::into),
        Command::Programs(arguments) => programs::run(&arguments).map_err(Into::into),
        Command::Python(arguments) => python::run(&arguments).map_err(Into::into),
        Command::Soak(arguments) => soak::run(&arguments).map_err(Into::into),
        Command::Web(arguments) => web::run(&arguments).map_err(Into::into),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}
