//! What a command shows besides its result: notes, errors and progress, on standard error.
//!
//! A process has one terminal, so its settings are those of the process. [`set`] takes them once, from `--quiet` and
//! `--color`, before a command runs.

use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use anstyle::{AnsiColor, Style};
use clap::{ColorChoice, ValueEnum};
use indicatif::ProgressBar;
use nearpage_machine::escaped;

static IS_QUIET: AtomicBool = AtomicBool::new(false);

/// The colour of what needs attention.
const BAD: Style = AnsiColor::Red.on_default().bold();

/// Takes the settings of this process. `NO_COLOR` counts where the choice is `auto`.
pub fn set(is_quiet: bool, color: ColorChoice) {
    IS_QUIET.store(is_quiet, Ordering::Relaxed);
    let choice = match color {
        ColorChoice::Auto => anstream::ColorChoice::Auto,
        ColorChoice::Always => anstream::ColorChoice::Always,
        ColorChoice::Never => anstream::ColorChoice::Never,
    };
    choice.write_global();
}

/// The value of `--color` in arguments that nobody has parsed yet: help and errors of parsing have colours too.
pub fn color_of(arguments: &[OsString]) -> ColorChoice {
    let words: Vec<&str> = arguments.iter().map_while(|word| word.to_str()).collect();
    let own = words.split(|&word| word == "--").next().unwrap_or_default();
    let after_equals = own.iter().find_map(|word| word.strip_prefix("--color="));
    let next_word = own.windows(2).find(|pair| pair[0] == "--color").map(|pair| pair[1]);
    let value = after_equals.or(next_word).and_then(|word| ColorChoice::from_str(word, false).ok());
    value.unwrap_or_default()
}

/// Shows something that is worth knowing, and no failure. `--quiet` hides it.
pub fn note(text: impl Display) {
    if !IS_QUIET.load(Ordering::Relaxed) {
        line("nearpage:", text);
    }
}

/// Shows a report on standard error, where standard output belongs to another program. Nobody may be listening.
pub fn report(text: &str) {
    _ = io::stderr().write_all(escaped(text).as_bytes());
}

/// Shows why something failed.
pub fn error(text: impl Display) {
    line(format_args!("{BAD}nearpage:{BAD:#}"), text);
}

/// Writes one line with one call, so that lines of threads do not mix. If nobody listens, the program goes on. The text
/// may have words of strangers: only the head has colours.
fn line(head: impl Display, text: impl Display) {
    let line = format!("{head} {}\n", escaped(&text.to_string()));
    _ = anstream::stderr().write_all(line.as_bytes());
}

/// A sign of life for work whose length nobody knows, on a terminal. `--quiet` and redirection hide it.
pub fn spinner() -> ProgressBar {
    if is_hidden() { ProgressBar::hidden() } else { ProgressBar::new_spinner() }
}

/// Whether progress is not to be shown.
pub fn is_hidden() -> bool {
    IS_QUIET.load(Ordering::Relaxed) || !io::stderr().is_terminal()
}
