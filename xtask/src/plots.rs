//! `cargo xtask plots`: the plots of the book, out of the pages that `nearpage lab NAME --report` writes, and
//! `nearpage replay BUNDLE --bound --report` for bundles of the folder that `NEARPAGE_BUNDLES` names.
//!
//! What the command prints goes to `bench/NAME.txt`, and the picture says so: `cargo xtask book` finds pictures that are older.
//!
//! A page has each plot as a figure: a caption with the legend, and an SVG. A picture of the book is some of these
//! figures, one below the other, on white: readers see it under any theme.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Pictures: name of the file, scenario, captions of the figures.
const PLOTS: [(&str, &str, &[&str]); 5] = [
    ("2006-zonelist-cache", "zonelist-cache", &["percent"]),
    ("2010-memoryless-slab", "memoryless-slab", &["before_s", "after_s"]),
    (
        "2016-page-waitqueue",
        "page-waitqueue",
        &[
            "throughput_percent (definition)",
            "throughput_percent (calibrated)",
            "throughput_percent",
            "per node / global",
        ],
    ),
    ("2017-bulk", "bulk", &["page, cycles", "more through the zone, cycles"]),
    ("2023-pcp-autotune", "pcp-autotune", &["free_high_per_page", "zone_lock_percent"]),
];
/// Bundles whose bounds are drawn: an own node, and what one CPU allocates and another frees, each on two machines.
const BOUNDS: [&str; 4] = ["h-make", "h-unix", "q612-n2-mixed", "q612-pressure"];
/// The rules beside those of the recorded kernel.
const RULES: [&str; 3] = ["linux-6.1", "rfc-2026-owned", "nearpage"];
/// The classes that those rules are of.
const CLASSES: [&str; 2] = [
    "Holds over pages kept a CPU; bound of the class lists",
    "Holds over pages kept a CPU; bound of the class pooled",
];
/// Width of the report's figures.
const WIDTH: u32 = 480;
/// Height of a caption, and of each line of a legend below it.
const CAPTION: u32 = 26;
const LEGEND: u32 = 18;

/// Why there are no plots.
#[derive(Debug, thiserror::Error)]
pub enum PlotsError {
    /// The program could not be run, or a file not be read or written.
    #[error("{what}: {error}")]
    Io {
        /// What could not.
        what: String,
        /// Why.
        error: io::Error,
    },
    /// A scenario or a replay failed; it has said why on standard error.
    #[error("nearpage failed for {0}")]
    Failed(&'static str),
    /// The page has no such figure.
    #[error("the report of {name} has no figure `{caption}`")]
    NoFigure {
        /// The scenario or bundle.
        name: &'static str,
        /// Its caption.
        caption: &'static str,
    },
}

/// Runs the scenarios and replays, and writes `docs/src/img`.
///
/// # Errors
///
/// [`PlotsError`].
pub fn run() -> Result<(), PlotsError> {
    for (file, scenario, captions) in PLOTS {
        draw(file, scenario, captions, &["lab", scenario])?;
    }
    let Some(folder) = std::env::var_os("NEARPAGE_BUNDLES").map(PathBuf::from) else {
        println!(
            "NEARPAGE_BUNDLES names no folder of bundles: the plots of bounds stay as they are"
        );
        return Ok(());
    };
    for bundle in BOUNDS {
        let path = folder.join(bundle);
        let rules = RULES.iter().flat_map(|rules| ["--model", rules]);
        let arguments = ["replay", "--bound"].into_iter().chain(rules);
        let path = path.to_string_lossy();
        let arguments: Vec<&str> = arguments.chain([&*path]).collect();
        draw(&format!("bound-{bundle}"), bundle, &CLASSES, &arguments)?;
    }
    Ok(())
}

/// Draws figures of the page that a command writes.
fn draw(
    file: &str,
    name: &'static str,
    captions: &[&'static str],
    arguments: &[&str],
) -> Result<(), PlotsError> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let folder = tempfile::tempdir().map_err(|error| failed("a temporary folder", error))?;
    let (page, printed) = report(&root, folder.path(), name, arguments)?;
    let figures = captions
        .iter()
        .map(|&caption| figure(&page, caption).ok_or(PlotsError::NoFigure { name, caption }));
    let result = record(&root, file, arguments, &printed)?;
    let mark = crate::book::mark(file, &result);
    let picture =
        picture(&figures.collect::<Result<Vec<_>, _>>()?).replacen('\n', &format!("\n{mark}\n"), 1);
    let path = root.join("docs/src/img").join(format!("{file}.svg"));
    fs::write(&path, picture).map_err(|error| failed(&path.display().to_string(), error))?;
    println!("{file}.svg");
    Ok(())
}

fn failed(what: &str, error: io::Error) -> PlotsError {
    PlotsError::Io { what: what.to_owned(), error }
}

/// Keeps what a command printed, with the command and the commit, and the processor of what it measured.
fn record(
    root: &Path,
    file: &str,
    arguments: &[&str],
    printed: &str,
) -> Result<String, PlotsError> {
    let commit =
        Command::new("git").args(["rev-parse", "--short", "HEAD"]).current_dir(root).output();
    let commit = commit.map_err(|error| failed("git", error))?.stdout;
    let commit = String::from_utf8_lossy(&commit).trim().to_owned();
    let names = arguments.iter().map(|argument| argument.rsplit('/').next().unwrap_or(argument));
    let command = names.collect::<Vec<_>>().join(" ");
    let measured = match printed.contains("(here)") {
        true => format!("; what is of here was measured on {}", processor()),
        false => String::new(),
    };
    let text = format!(
        "# nearpage {command}, commit {commit}; what is simulated is the same on every machine{measured}\n\n{printed}"
    );
    let path = root.join("bench").join(format!("{file}.txt"));
    fs::write(&path, &text).map_err(|error| failed(&path.display().to_string(), error))?;
    Ok(text)
}

/// The first processor that this machine names.
fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    name.map_or("a processor without a name", |(_, name)| name).to_owned()
}

/// The page that a command of the program writes, and what it prints.
fn report(
    root: &Path,
    folder: &Path,
    name: &'static str,
    arguments: &[&str],
) -> Result<(String, String), PlotsError> {
    let path: PathBuf = folder.join("page.html");
    let output = Command::new("cargo")
        .args(["run", "--quiet", "--release", "--package", "nearpage-cli", "--"])
        .args(arguments)
        .arg("--report")
        .arg(&path)
        .current_dir(root)
        .stderr(std::process::Stdio::inherit())
        .output()
        .map_err(|error| failed("cargo", error))?;
    if !output.status.success() {
        return Err(PlotsError::Failed(name));
    }
    let page =
        fs::read_to_string(&path).map_err(|error| failed(&path.display().to_string(), error))?;
    // Lines at the left margin may name the file that was replayed by its path.
    let folder = std::env::var("NEARPAGE_BUNDLES").unwrap_or_default();
    let printed = String::from_utf8_lossy(&output.stdout)
        .replace(&folder, "")
        .replace(&*path.to_string_lossy(), "page.html");
    Ok((page, printed))
}

/// One figure of a page.
#[derive(PartialEq, Eq, Debug)]
struct Figure<'a> {
    caption: &'a str,
    /// Colour and name of each series.
    legend: Vec<(&'a str, &'a str)>,
    height: u32,
    /// The whole element `svg`.
    svg: &'a str,
}

/// The figure with a caption.
fn figure<'a>(page: &'a str, caption: &'a str) -> Option<Figure<'a>> {
    let head = format!("<figcaption><b>{caption}</b>");
    let (head, rest) =
        page.split_at_checked(page.find(&head)? + head.len())?.1.split_once("</figcaption>")?;
    let series = |text: &'a str| {
        let (colour, text) = text.split_once('"')?;
        Some((colour, text.strip_prefix("></i>")?.split("</span>").next()?))
    };
    let legend = head.split("background:").skip(1).filter_map(series).collect();
    let svg = &rest[rest.find("<svg ")?..];
    let svg = &svg[..svg.find("</svg>")? + "</svg>".len()];
    let height = svg.split_once("height=\"")?.1.split('"').next()?.parse().ok()?;
    Some(Figure { caption, legend, height, svg })
}

/// Pixels that a name takes in a legend, with its mark.
fn name_width(name: &str) -> u32 {
    7 * name.chars().count() as u32 + 28
}

/// The lines of a legend: behind the caption if there is room for all of it, else on lines of its own below.
fn legend_lines<'f>(figure: &'f Figure<'_>) -> Vec<&'f [(&'f str, &'f str)]> {
    let width =
        |names: &[(&str, &str)]| names.iter().map(|(_, name)| name_width(name)).sum::<u32>();
    let caption = 8 * figure.caption.chars().count() as u32 + 16;
    if caption + width(&figure.legend) <= WIDTH {
        return vec![&figure.legend];
    }
    let (mut lines, mut rest) = (vec![&figure.legend[..0]], &figure.legend[..]);
    while !rest.is_empty() {
        let fits = |&count: &usize| width(&rest[..count]) + 8 <= WIDTH;
        let (line, more) = rest.split_at((1..=rest.len()).rev().find(fits).unwrap_or(1));
        lines.push(line);
        rest = more;
    }
    lines
}

/// Figures below each other, each under its caption.
fn picture(figures: &[Figure<'_>]) -> String {
    let head = |figure: &Figure<'_>| CAPTION + (legend_lines(figure).len() as u32 - 1) * LEGEND;
    let height: u32 = figures.iter().map(|figure| head(figure) + figure.height).sum();
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
    );
    let mut top = 0;
    for figure in figures {
        let base = top + 17;
        let line =
            |out: &mut String, text: String| writeln!(out, "{text}").expect("strings take all");
        line(
            &mut out,
            format!("<text x=\"8\" y=\"{base}\" font-weight=\"bold\">{}</text>", figure.caption),
        );
        for (at, names) in legend_lines(figure).into_iter().enumerate() {
            let base = base + at as u32 * LEGEND;
            let mut right = WIDTH - 8;
            for (colour, name) in names.iter().rev() {
                line(
                    &mut out,
                    format!("<text x=\"{right}\" y=\"{base}\" text-anchor=\"end\">{name}</text>"),
                );
                let left = right - (name_width(name) - 12);
                let y = base - 9;
                line(
                    &mut out,
                    format!(
                        "<rect x=\"{left}\" y=\"{y}\" width=\"10\" height=\"10\" fill=\"{colour}\"/>"
                    ),
                );
                right = left - 12;
            }
        }
        top += head(figure);
        line(&mut out, figure.svg.replacen("<svg ", &format!("<svg y=\"{top}\" "), 1));
        top += figure.height;
    }
    out.push_str("</svg>\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "<figure><figcaption><b>other</b></figcaption><svg height=\"1\"></svg></figure>\
        <figcaption><b>percent</b><span><i style=\"background:#848f9b\"></i>reference</span> <span><i \
        style=\"background:#2f88d8\"></i>model</span> </figcaption><div><svg width=\"480\" height=\"80\"><line/></svg></div>";

    #[test]
    fn a_figure_has_its_caption_legend_and_picture() {
        let found = figure(PAGE, "percent").unwrap();
        assert_eq!(found.legend, [("#848f9b", "reference"), ("#2f88d8", "model")]);
        assert_eq!(
            (found.height, found.svg),
            (80, "<svg width=\"480\" height=\"80\"><line/></svg>")
        );
        assert_eq!(figure(PAGE, "perc"), None);
    }

    #[test]
    fn a_picture_has_its_figures_below_each_other() {
        let figure = || figure(PAGE, "percent").unwrap();
        let picture = picture(&[figure(), figure()]);
        assert!(picture.contains("height=\"212\""), "twice 80 and a caption of 26: {picture}");
        assert!(
            picture.contains("<svg y=\"26\"") && picture.contains("<svg y=\"132\""),
            "{picture}"
        );
        assert_eq!(picture.matches("fill=\"#2f88d8\"").count(), 2);
    }

    #[test]
    fn a_legend_without_room_behind_its_caption_goes_below() {
        let names = ["bound, 64 pages a hold", "bound, 512 pages a hold", "linux-6.18", "nearpage"];
        let legend = names.map(|name| ("#111111", name)).to_vec();
        let figure =
            Figure { caption: "holds", legend, height: 10, svg: "<svg height=\"10\"></svg>" };
        let lines: Vec<usize> = legend_lines(&figure).iter().map(|line| line.len()).collect();
        assert_eq!(lines, [0, 3, 1]);
        let picture = picture(&[figure]);
        assert!(picture.contains("<svg y=\"62\""), "{picture}");
        assert!(!picture.contains("x=\"-"), "{picture}");
    }
}
