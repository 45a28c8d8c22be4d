//! `nearpage man`: manual pages of the program and its commands.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, CommandFactory};
use clap_mangen::Man;
use nearpage_machine::shown;

use super::{Cli, CommandError, write_output};

/// Print the manual page, or write those of all commands.
///
/// They are made from the same definitions as --help.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ManArgs {
    /// Write nearpage.1, nearpage-topo.1 and so on into this folder, which is made if it is missing,
    /// instead of printing the first one
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  nearpage man | man -l -
  nearpage man --out ~/.local/share/man/man1";

/// Why a manual page was not written.
#[derive(Debug, thiserror::Error)]
#[error("--out: {path}: {source}, expected a folder that can be written to")]
pub struct ManError {
    path: String,
    source: io::Error,
}

/// Runs the command.
///
/// # Errors
///
/// A page cannot be written.
pub fn run(arguments: &ManArgs) -> Result<(), CommandError> {
    let mut program = Cli::command();
    program.build();
    match &arguments.out {
        None => {
            let page = page(&program).map_err(CommandError::Output)?;
            write_output(|output| output.write_all(&page))
        }
        Some(folder) => {
            fs::create_dir_all(folder).map_err(|source| failed(folder, source))?;
            Ok(write_all(&program, folder)?)
        }
    }
}

fn failed(path: &Path, source: io::Error) -> ManError {
    ManError { path: shown(path).to_string(), source }
}

fn page(command: &clap::Command) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    Man::new(command.clone()).render(&mut text)?;
    Ok(text)
}

/// Writes the page of a command and those of its subcommands.
fn write_all(command: &clap::Command, folder: &Path) -> Result<(), ManError> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    let path = folder.join(format!("{name}.1"));
    let written = page(command).and_then(|page| fs::write(&path, page));
    written.map_err(|source| failed(&path, source))?;
    let is_page = |command: &&clap::Command| !command.is_hide_set() && command.get_name() != "help";
    command.get_subcommands().filter(is_page).try_for_each(|command| write_all(command, folder))
}
