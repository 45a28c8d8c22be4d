//! Errors as JSON, where JSON was asked for.
//!
//! ```json
//! {"schema": 1, "error": {"message": "...", "causes": ["..."], "exit_code": 2}}
//! ```
//!
//! The document takes the place of the result on standard output; the line on standard error stays.

use std::error::Error;
use std::ffi::OsString;
use std::io;

use serde::Serialize;

use crate::escaping::Escaping;

const SCHEMA: u32 = 1;

#[derive(Serialize)]
struct Document {
    schema: u32,
    error: Failure,
}

#[derive(Serialize)]
struct Failure {
    /// As on standard error, without the name of the program.
    message: String,
    /// The errors behind it that the message does not have in it, outermost first.
    causes: Vec<String>,
    exit_code: u8,
}

/// Arguments that cannot be understood.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Usage(String);

impl Usage {
    /// The first paragraph of clap's text, without its heading and colours.
    pub(super) fn of(error: &clap::Error) -> Usage {
        let text = error.render().to_string();
        let text = text.strip_prefix("error: ").unwrap_or(&text);
        Usage(text.split("\n\n").next().unwrap_or_default().trim().to_owned())
    }
}

/// Whether arguments ask for JSON. Those that cannot be parsed may do so too.
pub(super) fn wants_json(arguments: &[OsString]) -> bool {
    let own: Vec<_> = arguments.iter().take_while(|&argument| argument != "--").collect();
    let is_format = |pair: &[&OsString]| pair[0] == "--format" && pair[1] == "json";
    own.iter().any(|&argument| argument == "--json" || argument == "--format=json")
        || own.windows(2).any(is_format)
}

/// Prints the document of an error. If nobody listens, the exit code tells all the same.
pub(super) fn print(error: &dyn Error, exit_code: u8) {
    let message = error.to_string();
    let causes = std::iter::successors(error.source(), |&cause| cause.source());
    let causes = causes.map(ToString::to_string).filter(|cause| !message.contains(cause)).collect();
    let document = Document { schema: SCHEMA, error: Failure { message, causes, exit_code } };
    let mut output = Escaping::new(io::stdout().lock());
    if serde_json::to_writer_pretty(&mut output, &document).is_ok() {
        _ = io::Write::write_all(&mut output, b"\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_asked_for_before_the_command_that_is_recorded() {
        let asks =
            |words: &[&str]| wants_json(&words.iter().map(OsString::from).collect::<Vec<_>>());
        assert!(asks(&["nearpage", "topo", "--json"]));
        assert!(asks(&["nearpage", "topo", "--format", "json"]));
        assert!(asks(&["nearpage", "topo", "--format=json", "--numa"]));
        assert!(!asks(&["nearpage", "topo", "--format", "text", "json"]));
        assert!(!asks(&["nearpage", "record", "--", "lsblk", "--json"]));
    }
}
