//! `cargo xtask pages`: what pages of HTML do in a real Chromium, against the JSON of the same command.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::step::{StepError, found, output, root};

/// The public recording, and what is swept over it.
const SWEEP: [&str; 8] = [
    "whatif",
    "bundles/q612-n2-mixed.tar.zst",
    "--rules",
    "linux-6.12,nearpage",
    "--over",
    "pcp.batch_scale_max=0..5",
    "--over",
    "pcp.batch=31,63",
];
const ANSWER: [&str; 6] = [
    "whatif",
    "bundles/q612-n2-mixed.tar.zst",
    "--change",
    "pcp.batch_scale_max=0",
    "--starts",
    "0",
];
const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// Why a page does not do what it must.
#[derive(Debug, thiserror::Error)]
pub enum PagesError {
    /// A program could not be run.
    #[error(transparent)]
    Step(#[from] StepError),
    /// There is no folder for pages.
    #[error("a temporary folder: {0}")]
    Folder(#[from] io::Error),
    /// The page shows something else.
    #[error("{0}")]
    Differs(String),
}

/// Makes pages, opens them, and compares.
///
/// # Errors
///
/// [`PagesError`]. Without a browser nothing is tested, and a line says so.
pub fn run() -> Result<(), PagesError> {
    let Some(browser) = BROWSERS.into_iter().find_map(found) else {
        println!(
            "SKIPPED: pages of HTML are not opened: none of {} is installed (apt install chromium)",
            BROWSERS.join(", ")
        );
        return Ok(());
    };
    let folder = tempfile::tempdir()?;
    let page = folder.path().join("page.html");
    let browser = Browser { program: browser, folder: folder.path().join("profile") };
    let json = nearpage(&SWEEP, &page)?;
    let points = match serde_json::from_str::<Value>(&json) {
        Ok(mut sweep) => sweep["points"].take(),
        Err(error) => return Err(PagesError::Differs(format!("the JSON of a sweep: {error}"))),
    };
    let points = points.as_array().cloned().unwrap_or_default();
    let mut figures = 0;
    for at in [0, points.len() / 2 + 1, points.len() - 1] {
        let shown = browser.opened(&page, &state(&points[at]))?;
        figures += compare(&shown, &points[at])?;
    }
    println!("sliders: {figures} figures of 3 of {} points are those of the JSON", points.len());
    nearpage(&ANSWER, &page)?;
    let shown = browser.opened(&page, "")?;
    let plots = shown.matches("class=\"uplot").count();
    if plots < 3 {
        return Err(PagesError::Differs(format!(
            "{plots} plots were drawn anew, expected 3 or more"
        )));
    }
    println!("timeline: {plots} plots were drawn anew");
    Ok(())
}

/// Writes the page of a command, and returns its JSON.
fn nearpage(arguments: &[&str], page: &Path) -> Result<String, PagesError> {
    let mut command = Command::new("cargo");
    // The program as users build it, which CI has by now: without the package's name its features are those of the workspace.
    command.args(["run", "--quiet", "--release", "--"]);
    command.args(arguments).args(["--json", "--report"]).arg(page).current_dir(root());
    Ok(output("nearpage", &mut command)?)
}

/// A browser without a window.
struct Browser {
    program: PathBuf,
    /// Its own, so that no user's browser is touched.
    folder: PathBuf,
}

impl Browser {
    /// The page's elements after its scripts have run.
    fn opened(&self, page: &Path, state: &str) -> Result<String, PagesError> {
        let mut command = Command::new(&self.program);
        command.args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--virtual-time-budget=3000",
            "--window-size=1440,900",
            "--dump-dom",
        ]);
        command.arg(format!("--user-data-dir={}", self.folder.display()));
        command.arg(format!("file://{}#{state}", page.display()));
        Ok(output("the browser", &mut command)?)
    }
}

/// The state of the sliders at a point, as the page's address has it.
fn state(point: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or("recorded").to_owned();
    let settings = point["settings"].as_array().into_iter().flatten().map(text);
    let all: Vec<String> = settings.chain([format!("rules={}", text(&point["rules"]))]).collect();
    all.join("&")
}

/// Compares each figure that the page shows with the point's, and says how many there were.
fn compare(shown: &str, point: &Value) -> Result<usize, PagesError> {
    let mut figures = 0;
    for part in shown.split("<output data-figure=\"").skip(1) {
        let (key, rest) = part.split_once('"').unwrap_or_default();
        let value = rest.strip_prefix(" data-value=\"").and_then(|rest| rest.split_once('"'));
        let value = value.and_then(|(value, _)| value.parse::<f64>().ok());
        // Each side reads the text of a number in its own way, to a part in 2^52.
        let is_near = |(shown, of): (f64, f64)| (shown - of).abs() <= of.abs() * 1e-12;
        if !value.zip(point[key].as_f64()).is_some_and(is_near) {
            let problem =
                format!("{key}: the page shows {value:?}, and the JSON has {}", point[key]);
            return Err(PagesError::Differs(problem));
        }
        figures += 1;
    }
    match figures {
        0 => Err(PagesError::Differs("the page shows no figure of a point".into())),
        _ => Ok(figures),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_figure_that_differs_is_found() {
        let point = json!({"holds": 7, "rules": "r", "settings": ["a=1", "b=2"]});
        let page = |value: &str| format!("<output data-figure=\"holds\" data-value=\"{value}\">");
        assert_eq!(compare(&page("7"), &point).unwrap(), 1);
        let error = compare(&page("8"), &point).unwrap_err().to_string();
        assert_eq!(error, "holds: the page shows Some(8.0), and the JSON has 7");
        assert!(compare("<p>", &point).is_err());
        assert_eq!(state(&point), "a=1&b=2&rules=r");
    }
}
