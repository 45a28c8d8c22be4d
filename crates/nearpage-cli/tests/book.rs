//! The commands of the book and of README.md, run as they show them.
//!
//! In a block ```` ```console ```` a line that begins with `$` is a command, and what follows is its output; they run in the root of the
//! repository. The notation is that of `trycmd`: `[..]` stands for any characters of a line, a line of `...` for any lines, `? 1`
//! for the exit code. `TRYCMD=overwrite cargo test -p nearpage-cli --test book` writes the output anew.
//!
//! Blocks ```` ```console,ignore ```` take minutes: `BOOK_SLOW=1 cargo test -p nearpage-cli --test book` runs those too.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// What is run.
const PAGES: [&str; 2] = ["README.md", "docs/src/**/*.md"];

fn go_to_root() {
    env::set_current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .expect("the root of the repository is above this crate");
}

#[test]
fn commands_print_what_the_book_shows() {
    go_to_root();
    let pages = trycmd::TestCases::new();
    for glob in PAGES {
        pages.case(glob);
    }
}

#[test]
fn slow_commands_print_what_the_book_shows_if_asked_for() {
    go_to_root();
    let copies = tempfile::tempdir().unwrap();
    let mut pages = vec![PathBuf::from("README.md")];
    collect(Path::new("docs/src"), &mut pages);
    let mut blocks = 0;
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        let name = page.display().to_string().replace('/', "-");
        let slow =
            text.replace("```console\n", "```text\n").replace("```console,ignore", "```console");
        blocks += text.matches("```console,ignore").count();
        fs::write(copies.path().join(name), slow).unwrap();
    }
    assert!(blocks > 0, "no page has a slow command");
    if env::var_os("BOOK_SLOW").is_some() {
        trycmd::TestCases::new().case(copies.path().join("*.md"));
    }
}

/// The pages in a folder and below.
fn collect(folder: &Path, pages: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, pages);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
}
