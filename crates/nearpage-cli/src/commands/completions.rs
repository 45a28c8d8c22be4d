//! `nearpage completions`: what a shell needs to complete the arguments of this program.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::{Cli, CommandError, write_output};

/// Print completions for a shell.
///
/// They are made from the same definitions as --help.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum, value_name = "SHELL")]
    shell: Shell,
}

const EXAMPLES: &str = "\
Examples:
  nearpage completions bash > ~/.local/share/bash-completion/completions/nearpage
  nearpage completions zsh > ~/.zfunc/_nearpage
  nearpage completions fish > ~/.config/fish/completions/nearpage.fish";

/// Runs the command.
///
/// # Errors
///
/// The output cannot be written.
pub fn run(arguments: &CompletionsArgs) -> Result<(), CommandError> {
    let mut text = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "nearpage", &mut text);
    write_output(|output| std::io::Write::write_all(output, &text))
}
