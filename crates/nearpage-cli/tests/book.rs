//! The commands of the book and of README.md (out of `docs/README.trycmd`), run as they show them.
//!
//! In a block ```` ```console ```` a line that begins with `$` is a command, and what follows is its output; they run in the root of the
//! repository. The notation is that of `trycmd`: `[..]` stands for any characters of a line, a line of `...` for any lines, `? 1`
//! for the exit code. `TRYCMD=overwrite cargo test -p nearpage-cli --test book` writes the output anew.
//!
//! Blocks ```` ```console,ignore ```` take minutes: `BOOK_SLOW=1 cargo test -p nearpage-cli --test book` runs those too.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// What is run.
const PAGES: [&str; 2] = ["docs/README.trycmd", "docs/src/**/*.md"];

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
    let mut pages = vec![PathBuf::from("docs/README.trycmd")];
    collect(Path::new("docs/src"), "md", &mut pages);
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

/// Comments cite facts about Linux by number: `facts 4.2`, `Facts 9.3, 9.4`. Each number is a heading of the book.
#[test]
fn facts_that_comments_cite_are_in_the_book() {
    go_to_root();
    let (mut pages, mut sources) = (Vec::new(), Vec::new());
    collect(Path::new("docs/src/reference/linux-facts"), "md", &mut pages);
    collect(Path::new("crates"), "rs", &mut sources);
    let pages: String = pages.iter().map(|page| fs::read_to_string(page).unwrap()).collect();
    let numbers: BTreeSet<&str> = pages
        .lines()
        .filter_map(|line| {
            line.strip_prefix('#')?.trim_start_matches('#').split_whitespace().next()
        })
        .map(|number| number.trim_end_matches('.'))
        .collect();
    let (mut cited, mut missing) = (0, Vec::new());
    for source in &sources {
        for number in cited_in(&fs::read_to_string(source).unwrap()) {
            cited += 1;
            if !numbers.contains(number.as_str()) {
                missing.push(format!("{}: facts {number}", source.display()));
            }
        }
    }
    assert!(missing.is_empty(), "the book has no such facts:\n{}", missing.join("\n"));
    assert!(cited > 50, "only {cited} citations were found");
}

/// The numbers behind each `facts`; where nothing but a comma comes between two, they are of one list.
fn cited_in(text: &str) -> Vec<String> {
    let mut cited = Vec::new();
    for rest in ["facts ", "Facts "].into_iter().flat_map(|word| text.split(word).skip(1)) {
        for part in rest.split(", ") {
            let digits = part.chars().take_while(|c| c.is_ascii_digit() || *c == '.');
            let number: String = digits.collect();
            if !number.is_empty() {
                cited.push(number.trim_end_matches('.').to_owned());
            }
            if number != part {
                break;
            }
        }
    }
    cited
}

#[test]
fn citations_are_found_wherever_they_stand() {
    let text = "in order (facts 3.2). Facts 9.3, 9.4; `mm/slab.c`, 2.6.35\n/// of facts 13, as. The facts: none; facts 10.1 and";
    assert_eq!(cited_in(text), ["3.2", "13", "10.1", "9.3", "9.4"]);
}

/// The files with an ending in a folder and below.
fn collect(folder: &Path, ending: &str, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, ending, files);
        } else if path.extension().is_some_and(|extension| extension == ending) {
            files.push(path);
        }
    }
}
