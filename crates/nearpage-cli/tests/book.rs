//! The commands of the book, run as the book shows them.
//!
//! Blocks that begin with three backticks and `console` are run from the root of the repository, and their output is compared. The
//! notation is that of `trycmd`: `[..]` stands for any characters of a line, a line of `...` for any lines, `? 1` for
//! the exit code. `TRYCMD=overwrite cargo test -p nearpage-cli --test book` writes the output anew.

use std::env;

#[test]
fn commands_print_what_the_book_shows() {
    env::set_current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .expect("the root of the repository is above this crate");
    trycmd::TestCases::new().case("docs/src/**/*.md");
}
