//! What `top` and `export` watch: this machine, a copy of its files, a capture of a recording, or a process.

use std::path::Path;
use std::time::Duration;

use nearpage_bundle::BundleError;
use nearpage_machine::{Budget, FileTree, FolderTree, open_tree, shown};
use nearpage_watch::ProcessTree;

use super::{CommandError, input};

/// The files of a machine. Without a path, this one's.
pub(super) fn tree(
    path: Option<&Path>,
    capture: Option<&str>,
    budget: &Budget,
) -> Result<Box<dyn FileTree>, CommandError> {
    let Some(path) = path else { return Ok(Box::new(FolderTree::new("/"))) };
    match input::read_recording(path, budget) {
        Ok(mut recording) => {
            let name = recording.capture(capture)?.name.clone();
            let at = recording.captures.iter().position(|capture| capture.name == name);
            let at = at.expect("the capture was found by its name");
            Ok(recording.captures.swap_remove(at).tree)
        }
        // A folder may have fewer files, or have them one folder deeper.
        Err(BundleError::NoRecording { .. }) if !input::is_standard(path) => {
            let tree = open_tree(path, budget)?;
            if let Some(capture) = capture {
                return Err(CommandError::Usage(format!(
                    "{}: it has no capture {capture}: only recordings have captures, and it is none",
                    shown(path)
                )));
            }
            match has_figures(&*tree) {
                true => Ok(tree),
                false => Err(CommandError::Usage(format!(
                    "{}: no copy of a machine: none of {} is there",
                    shown(path),
                    FIGURES.join(", ")
                ))),
            }
        }
        Err(error) => Err(error.into()),
    }
}

/// Files without which there is nothing to watch.
const FIGURES: [&str; 3] = ["proc/zoneinfo", "proc/buddyinfo", "sys/devices/system/node"];

/// Whether one of them is there, readable or not: they may also come later, or be readable then.
fn has_figures(tree: &dyn FileTree) -> bool {
    let [zones, blocks, nodes] = FIGURES;
    let has = |file| !matches!(tree.read(file), Ok(None));
    has(zones) || has(blocks) || tree.names(nodes).is_ok_and(|names| !names.is_empty())
}

/// The files that a process serves: by its id, or the path of its socket.
pub(super) fn process(meant: &str) -> Result<Box<dyn FileTree>, CommandError> {
    Ok(Box::new(ProcessTree::open(meant)?))
}

/// An interval.
pub(super) fn delay(text: &str) -> Result<Duration, String> {
    let accepted = "expected seconds from 0.1 to 86400";
    let seconds: f64 = text.parse().map_err(|_| accepted.to_owned())?;
    if (0.1..=86_400.0).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err(accepted.into())
    }
}
