//! The commands of the book and of README.md (out of `docs/README.trycmd`), run as they show them.
//!
//! In a block ```` ```console ```` a line that begins with `$` is a command, and what follows is its output; they run in the root of the
//! repository. The notation is that of `trycmd`: `[..]` stands for any characters of a line, a line of `...` for any lines, `? 1`
//! for the exit code. `TRYCMD=overwrite cargo test -p nearpage-cli --test book` writes the output anew.
//!
//! Blocks ```` ```console,ignore ```` take minutes: `BOOK_SLOW=1 cargo test -p nearpage-cli --test book` runs those too.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

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
    let (mut blocks, mut copied) = (0, Vec::new());
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        let copy = copies.path().join(page.display().to_string().replace('/', "-") + ".md");
        blocks += text.matches("```console,ignore\n").count();
        fs::write(&copy, slow_alone(&text)).unwrap();
        copied.push((page, text, copy));
    }
    assert!(blocks > 0, "no page has a slow command");
    if env::var_os("BOOK_SLOW").is_none() {
        return;
    }
    trycmd::TestCases::new().case(copies.path().join("*.md"));
    if env::var("TRYCMD").is_ok_and(|mode| mode == "overwrite") {
        for (page, before, copy) in copied {
            let after = all_again(&fs::read_to_string(copy).unwrap());
            // What somebody wrote meanwhile is not lost.
            if after != before && fs::read_to_string(&page).unwrap() == before {
                fs::write(page, after).unwrap();
            }
        }
    }
}

/// A page in which the slow commands are the only ones.
fn slow_alone(page: &str) -> String {
    page.replace("```console\n", "```quick\n").replace("```console,ignore\n", "```console\n")
}

/// The page that [`slow_alone`] was made of.
fn all_again(page: &str) -> String {
    page.replace("```console\n", "```console,ignore\n").replace("```quick\n", "```console\n")
}

#[test]
fn a_page_of_slow_commands_becomes_the_whole_page_again() {
    let page = "```console\n$ a\n```\n```console,ignore\n$ b\n```\n```text\nc\n```\n";
    assert_eq!(slow_alone(page), "```quick\n$ a\n```\n```console\n$ b\n```\n```text\nc\n```\n");
    assert_eq!(all_again(&slow_alone(page)), page);
}

/// `docs/src/reference/help` has the help of each command, which the pages of the reference include.
/// `TRYCMD=overwrite cargo test -p nearpage-cli --test book` writes it anew.
#[test]
fn the_reference_has_the_help_of_each_command() {
    go_to_root();
    let folder = Path::new("docs/src/reference");
    let mut pages = Vec::new();
    collect(folder, "md", &mut pages);
    let pages: String = pages.iter().map(|page| fs::read_to_string(page).unwrap()).collect();
    let overwrite = env::var("TRYCMD").is_ok_and(|mode| mode == "overwrite");
    let (mut stale, mut kept) = (Vec::new(), BTreeSet::new());
    for command in with_options(&[]).into_iter().chain([Vec::new()]) {
        let name = if command.is_empty() { "nearpage".to_owned() } else { command.join("-") };
        let file = folder.join("help").join(name.clone() + ".txt");
        let include = format!("{{{{#include help/{name}.txt}}}}");
        assert!(pages.contains(&include), "no page of the reference has {include}");
        let help = help_of(&command);
        if overwrite {
            fs::write(&file, &help).unwrap();
        }
        if fs::read_to_string(&file).is_ok_and(|text| text == help) {
            kept.insert(file);
        } else {
            stale.push(file);
        }
    }
    assert!(stale.is_empty(), "not what the program says, TRYCMD=overwrite writes them: {stale:?}");
    let mut files = Vec::new();
    collect(&folder.join("help"), "txt", &mut files);
    files.retain(|file| !kept.contains(file));
    assert!(files.is_empty(), "of no command: {files:?}");
}

/// The commands below one that do something themselves.
fn with_options(above: &[String]) -> Vec<Vec<String>> {
    let help = help_of(above);
    let is_listed = |line: &&str| line.starts_with("  ") && line.as_bytes()[2].is_ascii_lowercase();
    let listed = help.lines().take_while(|line| *line != "Options:" && *line != "Arguments:");
    let mut found = Vec::new();
    for line in listed.filter(is_listed) {
        let name = line.split_whitespace().next().unwrap_or_default();
        if ["help", "completions", "man"].contains(&name) {
            continue;
        }
        let path = [above, &[name.to_owned()]].concat();
        let is_group = help_of(&path)
            .lines()
            .any(|line| line.starts_with("Usage:") && line.ends_with("<COMMAND>"));
        found.extend(with_options(&path));
        if !is_group {
            found.push(path);
        }
    }
    found
}

/// What `nearpage help` prints of a command.
fn help_of(command: &[String]) -> String {
    let output =
        Command::new(env!("CARGO_BIN_EXE_nearpage")).arg("help").args(command).output().unwrap();
    assert!(output.status.success(), "{command:?}");
    let help = String::from_utf8(output.stdout).unwrap();
    help.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

/// Blocks of `sh` and words in the text are not run: they may need root, another machine, or hours. Their commands and options exist.
#[test]
fn commands_that_are_not_run_exist() {
    go_to_root();
    let mut pages = vec![PathBuf::from("README.md"), PathBuf::from("CHANGELOG.md")];
    collect(Path::new("docs/src"), "md", &mut pages);
    let known: BTreeMap<String, String> = with_options(&[])
        .into_iter()
        .chain(["completions", "man", "trace", "help"].map(|name| vec![name.to_owned()]))
        .map(|command| (command.join(" "), help_of(&command)))
        .collect();
    let (mut seen, mut wrong) = (0, Vec::new());
    for page in pages {
        for command in commands_in(&fs::read_to_string(&page).unwrap()) {
            seen += 1;
            wrong.extend(
                unknown(&command, &known).map(|what| format!("{}: {what}", page.display())),
            );
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen > 100, "only {seen} commands were found");
}

/// The commands of `nearpage` in blocks of `sh` and between single backticks, each as its words.
fn commands_in(page: &str) -> Vec<Vec<String>> {
    let (mut kind, mut texts) = (None, Vec::new());
    for line in page.lines() {
        match (line.strip_prefix("```"), kind) {
            (Some(_), Some(_)) => kind = None,
            (Some(opened), None) => kind = Some(opened),
            (None, Some("sh")) => texts.push(line.split(" # ").next().unwrap_or_default()),
            (None, Some(_)) => {}
            (None, None) => texts.extend(line.split('`').skip(1).step_by(2)),
        }
    }
    let parts = texts.into_iter().flat_map(|text| text.split(['|', ';', '&', '\\']));
    let words = parts.map(|part| part.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
    words
        .filter_map(|words| {
            let at = words.iter().position(|word| word == "nearpage")?;
            let before = &words[..at];
            let is_run = before
                .iter()
                .all(|word| word.contains('=') || word == "sudo" || word == "ssh" || word == "box");
            (is_run && words.len() > at + 1).then(|| words[at + 1..].to_vec())
        })
        .collect()
}

/// The command or the option that there is not.
fn unknown(words: &[String], known: &BTreeMap<String, String>) -> Option<String> {
    let first = &words[0];
    if first.starts_with('-') || first.chars().all(|c| c.is_ascii_uppercase()) {
        return None;
    }
    let two = words[..words.len().min(2)].join(" ");
    let Some(help) = known.get(&two).or_else(|| known.get(first)) else {
        return Some(format!("nearpage {first} is no command"));
    };
    let ours = words.iter().take_while(|word| *word != "--");
    let mut options = ours
        .filter(|word| word.starts_with("--"))
        .map(|word| word.split('=').next().unwrap_or(word));
    let has = |option: &str| {
        help.split(|c: char| !c.is_alphanumeric() && c != '-').any(|word| word == option)
    };
    let lacks = options.find(|option| !has(option))?;
    Some(format!("nearpage {two} has no {lacks}"))
}

#[test]
fn a_command_that_does_not_exist_is_found() {
    let page = "Run `nearpage rpelay` or `nearpage replay --stat 1`.\n\n```sh\nsudo nearpage record --nothing -- make --all | nearpage replay -   # --not\n```\n";
    let known = ["replay", "record"].map(|name| (name.to_owned(), "--starts".to_owned()));
    let known = BTreeMap::from(known);
    let found: Vec<String> =
        commands_in(page).iter().filter_map(|command| unknown(command, &known)).collect();
    assert_eq!(
        found,
        [
            "nearpage rpelay is no command",
            "nearpage replay --stat has no --stat",
            "nearpage record --nothing has no --nothing",
        ]
    );
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
