//! `cargo xtask book`: what README, book, ARCHITECTURE and CHANGELOG say comes from somewhere, and is what that says today.
//!
//! `--check` lists figures without a source or with another one's value, blocks that nothing runs, pictures older than their
//! results, chapters about rules that are not the default's. `--refresh` fills figures and tables from result files, lets tested
//! blocks print anew, and writes README.md. CONTRIBUTING.md, "Figures", has the rules for authors.

mod figure;
mod page;
mod picture;
mod readme;
mod results;
mod table;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;

use page::{Block, Directive};
use results::Results;

/// Check that figures, blocks, pictures and chapters of the book are what their sources say today
#[derive(Args)]
pub struct BookArgs {
    /// List what is not, and fail if there is anything; this is the default
    #[arg(long)]
    check: bool,
    /// Fill figures and tables from result files, and let tested blocks print anew
    #[arg(long, conflicts_with = "check")]
    refresh: bool,
    /// With --refresh: slow blocks and the pictures of the lab, too: minutes
    #[arg(long, requires = "refresh")]
    slow: bool,
}

/// Why the book is not what it should be.
#[derive(Debug, thiserror::Error)]
pub enum BookError {
    /// A file could not be read or written.
    #[error("{0}: {1}")]
    Io(String, io::Error),
    /// The pictures could not be drawn.
    #[error(transparent)]
    Plots(#[from] crate::plots::PlotsError),
    /// The tests that print blocks anew failed.
    #[error(
        "the tested blocks could not be printed anew: cargo test -p nearpage-cli --test book says why"
    )]
    Blocks,
    /// What was found.
    #[error(
        "{0} pages have new figures without a source, blocks that nothing runs, or older pictures and rules"
    )]
    Found(usize),
}

/// Chapters about rules that models choose.
const ABOUT_RULES: [&str; 9] = [
    "docs/src/how/buddy.md",
    "docs/src/how/comparing-rules.md",
    "docs/src/how/life-of-a-page.md",
    "docs/src/how/pagesets.md",
    "docs/src/how/rules-of-our-own.md",
    "docs/src/guides/pool.md",
    "docs/src/guides/kernel.md",
    "docs/src/trust/departures.md",
    "docs/src/costs/losses.md",
];

/// Checks or refreshes.
///
/// # Errors
///
/// [`BookError`].
pub fn run(arguments: &BookArgs) -> Result<(), BookError> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let bench = root.join("bench");
    if arguments.refresh {
        if arguments.slow {
            crate::plots::run()?;
        }
        print_blocks_anew(&root, arguments.slow)?;
    }
    let results =
        Results::read(&bench).map_err(|error| BookError::Io(bench.display().to_string(), error))?;
    let (mut found, mut filled) = (Vec::new(), 0);
    for path in pages(&root)? {
        let name = path.strip_prefix(&root).unwrap_or(&path).display().to_string();
        let text = read(&path)?;
        let checked = check(&name, &text, &results, &root);
        if arguments.refresh && checked.text != text {
            write(&path, &checked.text)?;
            filled += 1;
        }
        let stale = checked.stale.into_iter().filter(|_| !arguments.refresh);
        found.extend(checked.found.into_iter().chain(stale));
    }
    readme(&root, &results, arguments.refresh, &mut found)?;
    found.extend(pictures(&root, &results)?);
    let words = words(&root)?;
    if words > WORDS_MAX {
        found.push(format!(
            "Markdown: {words} words, at most {WORDS_MAX}: say it once, or include it from the code"
        ));
    }
    found.extend(
        results.without_origin().map(|name| format!("bench/{name}: no commit in its first lines")),
    );
    if arguments.refresh {
        println!("{filled} pages have other figures");
    }
    for finding in &found {
        println!("{finding}");
    }
    println!(
        "{} figures without a source, blocks that nothing runs, stale pictures and chapters; {words} words of Markdown",
        found.len()
    );
    if found.is_empty() { Ok(()) } else { Err(BookError::Found(found.len())) }
}

/// The most words that all Markdown of the repository has: nobody reads more.
const WORDS_MAX: usize = 60_000;

/// The words of all Markdown, as `wc -w` counts them.
fn words(root: &Path) -> Result<usize, BookError> {
    let mut pages = Vec::new();
    let failed = |error| BookError::Io(root.display().to_string(), error);
    for entry in fs::read_dir(root).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_ours = !name.starts_with('.') && name != "target";
        if is_ours && path.is_dir() {
            collect(&path, &mut pages)?;
        } else if is_ours && name.ends_with(".md") {
            pages.push(path);
        }
    }
    pages.iter().try_fold(0, |sum, page| Ok(sum + read(page)?.split_whitespace().count()))
}

fn read(path: &Path) -> Result<String, BookError> {
    fs::read_to_string(path).map_err(|error| BookError::Io(path.display().to_string(), error))
}

fn write(path: &Path, text: &str) -> Result<(), BookError> {
    fs::write(path, text).map_err(|error| BookError::Io(path.display().to_string(), error))
}

/// The pages whose figures need sources. Facts about Linux are a source themselves.
fn pages(root: &Path) -> Result<Vec<PathBuf>, BookError> {
    let mut pages = vec![root.join("ARCHITECTURE.md"), root.join("CHANGELOG.md")];
    collect(&root.join("docs/src"), &mut pages)?;
    pages.retain(|page| !page.components().any(|part| part.as_os_str() == "linux-facts"));
    pages.sort();
    Ok(pages)
}

fn collect(folder: &Path, pages: &mut Vec<PathBuf>) -> Result<(), BookError> {
    let failed = |error| BookError::Io(folder.display().to_string(), error);
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() && !path.ends_with("target") && !path.ends_with(".venv") {
            collect(&path, pages)?;
        } else if path.extension().is_some_and(|ending| ending == "md") {
            pages.push(path);
        }
    }
    Ok(())
}

/// What a page is, and what it would be.
struct Checked {
    /// What an author has to mend.
    found: Vec<String>,
    /// What `--refresh` mends.
    stale: Vec<String>,
    /// The page with the figures that its sources have today.
    text: String,
}

fn check(name: &str, text: &str, results: &Results, root: &Path) -> Checked {
    let mut checked = Checked { found: Vec::new(), stale: Vec::new(), text: text.to_owned() };
    let blocks = match page::blocks(text) {
        Ok(blocks) => blocks,
        Err(error) => {
            checked.found.push(format!("{name}: {error}"));
            return checked;
        }
    };
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let mut edits: Vec<(Range<usize>, Vec<String>)> = Vec::new();
    let shown = shown_on(&blocks);
    let mut rules = None;
    for block in &blocks {
        match block {
            Block::Fence { at, kind, lines, source } => {
                if let Some(why) = unrun(name, kind, lines, *source, results, root) {
                    checked.found.push(format!("{name}:{}: {why}", at + 1));
                }
            }
            Block::Table { at, what, lines } => match table::shown(what, results) {
                Err(error) => checked.found.push(format!("{name}:{}: {error}", at + 1)),
                Ok(fresh) if fresh != *lines => {
                    checked.stale.push(format!(
                        "{name}:{}: the table is not what `{what}` has today",
                        at + 1
                    ));
                    let first = at + 1 + what.matches('\n').count();
                    edits.push((first..first + lines.len(), fresh));
                }
                Ok(_) => {}
            },
            Block::Text { at, lines: text, source } => {
                let figures = figure::figures(text);
                match source {
                    Some(Directive { name: "figures", value }) => {
                        fill(name, *at, text, value, &figures, results, &mut lines, &mut checked);
                    }
                    Some(source) => checked.found.extend(
                        figures
                            .iter()
                            .filter_map(|(line, place)| {
                                Some((line, chosen(*source, &text[*line][place.clone()], root)?))
                            })
                            .map(|(line, why)| format!("{name}:{}: {why}", at + line + 1)),
                    ),
                    None => checked.found.extend(
                        figures
                            .iter()
                            .filter(|(line, place)| !is_shown(text[*line], place, &shown))
                            .map(|(line, place)| {
                                format!(
                                    "{name}:{}: no source: {}",
                                    at + line + 1,
                                    around(text[*line], place)
                                )
                            }),
                    ),
                }
            }
            Block::Alone(Directive { name: "rules", value }) => rules = Some(*value),
            Block::Alone(Directive { name: "lines", .. }) => {}
            Block::Alone(other) => {
                checked
                    .found
                    .push(format!("{name}: `{}: {}` follows no text", other.name, other.value));
            }
        }
    }
    if rules.is_some() || ABOUT_RULES.contains(&name) {
        let today = default_rules();
        if rules != Some(&today) {
            let said = rules.unwrap_or("nothing");
            checked.found.push(format!(
                "{name}: describes the rules of {said}, and {today} are the default: make it true, then say `<!-- rules: {today} -->`"
            ));
        }
    }
    for (range, fresh) in edits.into_iter().rev() {
        lines.splice(range, fresh);
    }
    checked.text = lines.join("\n") + "\n";
    checked
}

/// Name and fingerprint of the rules that run by default: the fingerprint is of all that a model decides.
fn default_rules() -> String {
    let model = nearpage::Config::default().model;
    format!("{} {:08x}", model.name, fingerprint(&format!("{model:?}")) as u32)
}

/// FNV-1a.
fn fingerprint(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

/// What tested blocks and tables of a page show: its text may repeat it.
fn shown_on(blocks: &[Block<'_>]) -> String {
    let mut shown = String::new();
    for block in blocks {
        if let Block::Fence { kind: "console" | "console,ignore", lines, .. }
        | Block::Table { lines, .. } = block
        {
            shown += &lines.join("\n");
            shown.push('\n');
        }
    }
    shown
}

/// Whether a figure of a text repeats what is shown: the number, or with its unit if it has fewer than three digits.
fn is_shown(line: &str, place: &Range<usize>, shown: &str) -> bool {
    let number = &line[place.clone()];
    let rest = &line[place.end..];
    let unit =
        rest.find(|c: char| !c.is_alphanumeric() && c != ' ' && c != '%').unwrap_or(rest.len());
    let unit = rest[..unit].trim_start().split(' ').next().unwrap_or_default();
    let digits = number.chars().filter(char::is_ascii_digit).count();
    let whole = |text: &str| {
        shown.match_indices(text).any(|(at, _)| {
            let before = shown[..at].chars().next_back().unwrap_or(' ');
            let after = shown[at + text.len()..].chars().next().unwrap_or(' ');
            !before.is_ascii_digit() && before != '.' && !after.is_ascii_digit()
        })
    };
    if digits >= 3 {
        return whole(number) || whole(&number.replace(' ', ""));
    }
    whole(&format!("{number}{unit}")) || whole(&format!("{number} {unit}"))
}

/// A figure with what stands around it.
fn around<'a>(line: &'a str, place: &Range<usize>) -> &'a str {
    let from = line[..place.start].char_indices().rev().nth(20).map_or(0, |(at, _)| at);
    let to = line[place.end..].char_indices().nth(20).map_or(line.len(), |(at, _)| place.end + at);
    &line[from..to]
}

/// Compares the figures of a text with its keys, and fills them.
#[allow(clippy::too_many_arguments, reason = "two outputs, and the parts of one block")]
fn fill(
    name: &str,
    at: usize,
    text: &[&str],
    keys: &str,
    figures: &[(usize, Range<usize>)],
    results: &Results,
    lines: &mut [String],
    checked: &mut Checked,
) {
    let keys: Vec<&str> = keys.split(';').map(str::trim).filter(|key| !key.is_empty()).collect();
    if keys.len() != figures.len() {
        let said: Vec<&str> =
            figures.iter().map(|(line, place)| &text[*line][place.clone()]).collect();
        checked.found.push(format!(
            "{name}:{}: {} figures ({}), and {} keys name their sources",
            at + 1,
            figures.len(),
            said.join(", "),
            keys.len()
        ));
        return;
    }
    for ((line, place), key) in figures.iter().zip(keys).rev() {
        let said = &text[*line][place.clone()];
        let value = results.value(key).and_then(|value| {
            results::number(&value).ok_or_else(|| format!("`{key}` is `{value}`, no number"))
        });
        match value {
            Err(error) => checked.found.push(format!("{name}:{}: {error}", at + line + 1)),
            Ok(value) => {
                let fresh = rounded(value, said);
                if fresh != said {
                    checked
                        .stale
                        .push(format!("{name}:{}: {said}, but {fresh} by {key}", at + line + 1));
                    lines[at + line].replace_range(place.clone(), &fresh);
                }
            }
        }
    }
}

/// A value with as many digits behind the point as a page shows, and spaces between thousands if it has them.
fn rounded(value: f64, said: &str) -> String {
    let decimals = said.split_once('.').map_or(0, |(_, digits)| digits.len());
    let text = format!("{value:.decimals$}");
    let whole = text.split('.').next().unwrap_or_default();
    if whole.len() < 5 && !said.contains(' ') {
        return text;
    }
    let grouped =
        whole.as_bytes().rchunks(3).rev().map(|group| String::from_utf8_lossy(group).into_owned());
    grouped.collect::<Vec<_>>().join(" ") + &text[whole.len()..]
}

/// Why a source that is no result file does not hold for a figure.
fn chosen(source: Directive<'_>, figure: &str, root: &Path) -> Option<String> {
    match source.name {
        "published" => {
            let dated =
                source.value.split(|c: char| !c.is_ascii_digit()).any(|word| word.len() == 4);
            (!dated && !source.value.contains("http"))
                .then(|| format!("published: `{}` has no year", source.value))
        }
        "wanted" => source.value.is_empty().then(|| "wanted: by whom?".to_owned()),
        "set" => {
            let text = source
                .value
                .split_whitespace()
                .filter(|path| !path.ends_with(".md"))
                .filter_map(|path| fs::read_to_string(root.join(path)).ok());
            let digits: String = figure.chars().filter(|c| *c != ' ').collect();
            let has = |text: String| {
                let text = text.replace('_', "");
                text.split(|c: char| !c.is_ascii_digit() && c != '.')
                    .any(|word| word.trim_matches('.') == digits)
            };
            (!text.into_iter().any(has)).then(|| format!("{} does not have {figure}", source.value))
        }
        _ => Some(format!("`{}` is no source of figures", source.name)),
    }
}

/// Why nothing holds a block to the truth.
fn unrun(
    page: &str,
    kind: &str,
    lines: &[&str],
    source: Option<Directive<'_>>,
    results: &Results,
    root: &Path,
) -> Option<String> {
    let file = page.rsplit('/').next().unwrap_or(page);
    let folder = page.rsplit('/').nth(1).unwrap_or_default();
    let named = format!("{folder}/{file}");
    // A file of its own, which a command of the page, a build or a test runs.
    if !lines.is_empty() && lines.iter().all(|line| line.starts_with("{{#include ")) {
        return lines.iter().find_map(|line| not_included(page, line, root));
    }
    match kind {
        // crates/nearpage-cli/tests/book.rs runs these; of `sh` it looks that commands and options exist.
        "console" | "console,ignore" | "sh" => None,
        "rust" => {
            let included =
                |source: &str| source.contains("include_str!") && source.contains(&named);
            (!any_source(root, "src", included))
                .then(|| "no crate includes this page, so nothing runs its Rust".to_owned())
        }
        "python" | "c" | "cpp" | "toml" => {
            (!any_source(root, "tests", |source| source.contains(&named)))
                .then(|| format!("no test reads {named}, so nothing runs its {kind}"))
        }
        "text" => {
            let figures =
                lines.iter().any(|line| figure::numbers(line).iter().any(|number| number.measured));
            match source {
                None => figures.then(|| {
                    "figures in a block of text without `<!-- lines: FILE -->`".to_owned()
                }),
                Some(source) if source.value.contains('/') => fs::metadata(root.join(source.value))
                    .is_err()
                    .then(|| format!("{} is not there", source.value)),
                Some(source) => match results.file(source.value) {
                    Err(error) => Some(error),
                    Ok(text) => {
                        let have: BTreeSet<&str> = text.lines().map(str::trim).collect();
                        let lacks = lines
                            .iter()
                            .find(|line| **line != "..." && !have.contains(line.trim()));
                        lacks.map(|line| format!("{} has no line `{}`", source.value, line.trim()))
                    }
                },
            }
        }
        _ => Some(format!("nothing runs blocks of kind `{kind}`")),
    }
}

/// Why a line that includes a file, or what stands at an anchor of it, shows nothing.
fn not_included(page: &str, line: &str, root: &Path) -> Option<String> {
    let named = line.strip_prefix("{{#include ")?.trim_end().trim_end_matches("}}");
    let (file, anchor) = named.split_once(':').unwrap_or((named, ""));
    let folder = Path::new(page).parent().unwrap_or(Path::new(""));
    match fs::read_to_string(root.join(folder).join(file)) {
        Err(error) => Some(format!("{file}: {error}")),
        Ok(text) if anchor.is_empty() || text.contains(&format!("ANCHOR: {anchor}\n")) => None,
        Ok(_) => Some(format!("{file} has no anchor {anchor}")),
    }
}

/// Whether any source file or test in a folder of a crate, or of the Python package, is such.
fn any_source(root: &Path, folder: &str, is: impl Fn(&str) -> bool) -> bool {
    let crates =
        fs::read_dir(root.join("crates")).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut folders: Vec<PathBuf> = crates.map(|path| path.join(folder)).collect();
    folders.push(root.join("python").join(folder));
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs" || ending == "py")
                && fs::read_to_string(&path).is_ok_and(|text| is(&text))
            {
                return true;
            }
        }
    }
    false
}

/// README.md out of its tested source, and its picture.
fn readme(
    root: &Path,
    results: &Results,
    refresh: bool,
    found: &mut Vec<String>,
) -> Result<(), BookError> {
    let page = readme::page(&read(&root.join(readme::SOURCE))?, results);
    let picture =
        picture::draw(results).map_err(|error| vec![format!("{}: {error}", picture::PATH)]);
    for (name, fresh) in [("README.md", page), (picture::PATH, picture)] {
        let path = root.join(name);
        match fresh {
            Err(errors) => found.extend(errors),
            Ok(fresh) if fs::read_to_string(&path).is_ok_and(|text| text == fresh) => {}
            Ok(fresh) if refresh => write(&path, &fresh)?,
            Ok(_) => found.push(format!(
                "{name}: not what its sources give today: cargo xtask book --refresh"
            )),
        }
    }
    Ok(())
}

/// The mark that a picture has of the results that it was drawn from.
pub fn mark(result: &str, text: &str) -> String {
    format!("<!-- bench/{result}.txt {:016x} -->", fingerprint(text))
}

/// Pictures that are older than their results.
fn pictures(root: &Path, results: &Results) -> Result<Vec<String>, BookError> {
    let folder = root.join("docs/src/img");
    let failed = |error| BookError::Io(folder.display().to_string(), error);
    let mut found = Vec::new();
    for entry in fs::read_dir(&folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.ends_with(picture::PATH) {
            continue;
        }
        let picture = read(&path)?;
        found.extend(
            stale_picture(&picture, results).map(|why| format!("docs/src/img/{name}: {why}")),
        );
    }
    Ok(found)
}

fn stale_picture(picture: &str, results: &Results) -> Option<String> {
    let said = picture.split_once("<!-- bench/").and_then(|(_, rest)| rest.split_once(".txt "));
    let Some((result, _)) = said else {
        return Some("does not say which results it shows: cargo xtask plots".to_owned());
    };
    match results.file(result) {
        Err(error) => Some(error),
        Ok(text) if picture.contains(&mark(result, text)) => None,
        Ok(_) => Some(format!("older than bench/{result}.txt: cargo xtask plots")),
    }
}

/// Runs the tests of the book so that they write what commands print today.
fn print_blocks_anew(root: &Path, slow: bool) -> Result<(), BookError> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .args(["test", "--quiet", "-p", "nearpage-cli", "--test", "book"])
        .env("TRYCMD", "overwrite")
        .current_dir(root);
    if slow {
        command.env("BOOK_SLOW", "1");
    }
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(BookError::Blocks),
        Err(error) => Err(BookError::Io("cargo".to_owned(), error)),
    }
}

#[cfg(test)]
mod tests;
