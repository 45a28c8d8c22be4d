//! nearpage in a browser: a page hands over what somebody dropped on it, and what is asked, and gets documents and pages.
//!
//! [`answer`] is the one entry. It takes the bytes of a file and a [`Question`], finds out what the bytes are ([`Kind`]) and asks
//! the library that the command would ask; so [`Answer::document`] is what `nearpage topo --json`, `explain --json` or `replay
//! --json` print. Nothing here knows a browser but `face`, which is compiled for WebAssembly alone.
//!
//! ```
//! use nearpage_machine::work::Unwatched;
//! use nearpage_web::{Kind, Question, answer};
//!
//! let question = Question { name: "pasted".into(), ..Question::default() };
//! let text = b"available: 1 nodes (0)\nnode 0 cpus: 0 1\nnode 0 size: 4096 MB\n";
//! let answer = answer(&question, text, &Unwatched)?;
//! assert_eq!(answer.kind, Kind::Machine);
//! assert!(answer.document.contains("\"min_free_kbytes\""));
//! # Ok::<(), nearpage_web::WebError>(())
//! ```
//!
//! | file | owns |
//! |---|---|
//! | `question` | what is asked, and the command that asks the same |
//! | `kind` | what bytes are |
//! | `machine`, `log`, `recording` | an answer each |
//! | `answer`, `error` | the entry, and why it has no answer |
//! | `face` | the functions that JavaScript sees |
//! | `page/` | the page: HTML, CSS, modules; `cargo xtask web` puts it beside the compiled crate |
//!
//! **Limits.** Contention is not here: the simulated machines of `nearpage-lab` run each CPU as a coroutine (`corosensei`), which
//! WebAssembly has no stack switch for. It would take an engine that keeps a CPU's state in a value and is stepped; the loads are
//! written as straight code today. Memory ends at 4 GiB; the answer about a machine with more frames than that is an error of
//! the browser, which the page tells.
#![warn(missing_debug_implementations)]
#![forbid(unsafe_code)]

mod answer;
mod error;
#[cfg(target_arch = "wasm32")]
mod face;
mod kind;
mod log;
mod machine;
mod question;
mod recording;

pub use answer::{Answer, about, answer};
pub use error::WebError;
pub use kind::Kind;
pub use question::Question;
