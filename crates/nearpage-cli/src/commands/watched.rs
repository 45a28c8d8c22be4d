//! What `top` and `export` watch: this machine, a copy of its files, or a capture of a recording.

use std::path::Path;

use nearpage_bundle::BundleError;
use nearpage_machine::{FileTree, FolderTree, open_tree};

use super::{CommandError, input};

/// The files of a machine. Without a path, this one's.
pub(super) fn tree(
    path: Option<&Path>,
    capture: Option<&str>,
) -> Result<Box<dyn FileTree>, CommandError> {
    let Some(path) = path else { return Ok(Box::new(FolderTree::new("/"))) };
    match input::read_recording(path) {
        Ok(mut recording) => {
            let name = recording.capture(capture)?.name.clone();
            let at = recording.captures.iter().position(|capture| capture.name == name);
            let at = at.expect("the capture was found by its name");
            Ok(recording.captures.swap_remove(at).tree)
        }
        // A folder may have fewer files, or have them one folder deeper.
        Err(BundleError::NoRecording { .. }) if !input::is_standard(path) => Ok(open_tree(path)?),
        Err(error) => Err(error.into()),
    }
}
