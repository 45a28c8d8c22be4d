//! What runs read: a folder that lives as long as the command.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::rows::Row;
use super::{ProgramsError, failed};
use crate::step::{is_root, root};

/// The library of nearpage's malloc.
pub(super) const LIBRARY: &str = "libnearpage_preload.so";

/// The user that programs become which refuse to run as root: nobody.
const USER: u32 = 65534;

pub(super) struct Inputs {
    folder: tempfile::TempDir,
}

impl Inputs {
    /// The folder, with a copy of the library: other users can read it there.
    pub fn new(library: &Path) -> Result<Self, ProgramsError> {
        let folder = tempfile::Builder::new().prefix("nearpage-programs-").tempdir();
        let inputs = Self { folder: folder.map_err(failed("a folder for inputs"))? };
        let open = Permissions::from_mode(0o755);
        fs::set_permissions(inputs.folder(), open.clone())
            .map_err(failed("the folder for inputs"))?;
        fs::copy(library, inputs.library()).map_err(failed("a copy of the library"))?;
        fs::set_permissions(inputs.library(), open).map_err(failed("the copy of the library"))?;
        Ok(inputs)
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn library(&self) -> PathBuf {
        self.folder().join(LIBRARY)
    }

    /// Words in front of a program that refuses to run as root.
    pub fn as_user(&self) -> String {
        if is_root() {
            format!("setpriv --reuid={USER} --regid={USER} --clear-groups")
        } else {
            String::new()
        }
    }

    /// Lets that user write to a folder.
    pub fn give_to_user(&self, folder: &Path) -> io::Result<()> {
        if is_root() { std::os::unix::fs::chown(folder, Some(USER), Some(USER)) } else { Ok(()) }
    }

    pub fn open_to_all(&self, file: &Path) -> io::Result<()> {
        fs::set_permissions(file, Permissions::from_mode(0o666))
    }

    /// Makes what a row reads.
    pub fn prepare(&self, row: &Row) -> Result<(), ProgramsError> {
        let output = Command::new("sh")
            .args(["-c", &format!("set -eu\n{}", row.setup)])
            .current_dir(self.folder())
            .env("SOURCES", root().join("bench/programs"))
            .env("LC_ALL", "C")
            .output()
            .map_err(failed("sh"))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        Err(failed(format!("what {} reads", row.name))(io::Error::other(said)))
    }
}
