//! Archives whose bytes depend on their files alone: sorted, owned by root, of one time.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use flate2::{Compression, GzBuilder};

use super::{Dist, Result, VERSION, io_error, output};

/// Packs a folder; its files stand below its own name.
pub(super) fn pack(dist: &Dist, folder: &Path, to: &Path) -> Result {
    let write = || -> io::Result<()> {
        let gzip =
            GzBuilder::new().mtime(0).write(BufWriter::new(File::create(to)?), Compression::best());
        let mut archive = tar::Builder::new(gzip);
        let top = folder.file_name().unwrap_or_default();
        for path in all(folder)? {
            let metadata = fs::symlink_metadata(&path)?;
            let name = Path::new(top).join(path.strip_prefix(folder).unwrap_or(&path));
            let mut header = tar::Header::new_gnu();
            header.set_mtime(dist.epoch);
            header.set_mode(if metadata.permissions().mode() & 0o100 != 0 { 0o755 } else { 0o644 });
            if metadata.is_symlink() {
                header.set_entry_type(tar::EntryType::Symlink);
                header.set_size(0);
                archive.append_link(&mut header, name, fs::read_link(&path)?)?;
            } else {
                header.set_size(metadata.len());
                archive.append_data(&mut header, name, File::open(&path)?)?;
            }
        }
        archive.into_inner()?.finish()?.flush()
    };
    write().map_err(io_error(to))
}

/// Unpacks such an archive, or one of a crate, into a folder.
pub(super) fn unpack(archive: &Path, folder: &Path) -> Result {
    let mut tar = Command::new("tar");
    output("tar", tar.arg("-xzf").arg(archive).arg("-C").arg(folder)).map(drop).map_err(Into::into)
}

/// Files and links of a folder and of those in it, by name.
pub(super) fn all(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if fs::symlink_metadata(&path)?.is_dir() {
            paths.extend(all(&path)?);
        } else {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// A file, packed as packages want theirs.
pub(super) fn gzip(from: &[u8], to: &Path) -> Result {
    let write = || {
        let mut gzip = GzBuilder::new().mtime(0).write(File::create(to)?, Compression::best());
        gzip.write_all(from)?;
        gzip.finish().map(drop)
    };
    write().map_err(io_error(to))
}

/// The sources as the last commit has them.
pub(super) fn source(dist: &Dist) -> Result {
    let prefix = format!("--prefix=nearpage-{VERSION}/");
    let to = dist.out.join(format!("nearpage-{VERSION}-source.tar.gz"));
    let mut command = Command::new("git");
    let commit = dist.commit.trim_end_matches("-dirty");
    command.args(["archive", "--format=tar.gz", &prefix, commit, "-o"]).arg(&to);
    output("git archive", command.current_dir(&dist.root)).map(drop).map_err(Into::into)
}

/// The sources of the last commit, unpacked in a folder.
pub(super) fn unpacked(dist: &Dist, folder: &Path) -> Result<PathBuf> {
    source(dist)?;
    fs::create_dir_all(folder).map_err(io_error(folder))?;
    unpack(&dist.out.join(format!("nearpage-{VERSION}-source.tar.gz")), folder)?;
    Ok(folder.join(format!("nearpage-{VERSION}")))
}

/// Has cargo compile our crates anew in a folder. It goes by times, and files of archives have the commit's, or none: what was
/// compiled of other ones would count.
pub(super) fn forget(target: &Path) -> Result {
    for profile in fs::read_dir(target).into_iter().flatten().flatten() {
        let fingerprints = fs::read_dir(profile.path().join(".fingerprint"));
        for entry in fingerprints.into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with("nearpage") || name.starts_with("xtask") {
                fs::remove_dir_all(entry.path()).map_err(io_error(entry.path()))?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    /// Files made at another time, in another order, with other rights of groups, are packed to the same bytes.
    #[test]
    fn bytes_depend_on_files_alone() {
        let made = |names: [&str; 2], mode: u32, age: u64| {
            let folder = tempfile::tempdir().unwrap();
            let packed = folder.path().join("packed");
            fs::create_dir_all(packed.join("in")).unwrap();
            for name in names {
                let path = packed.join("in").join(name);
                fs::write(&path, name).unwrap();
                fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
                let file = File::options().write(true).open(&path).unwrap();
                file.set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
            }
            std::os::unix::fs::symlink("in/a", packed.join("link")).unwrap();
            let dist = Dist::within(folder.path());
            let to = folder.path().join("a.tar.gz");
            pack(&dist, &packed, &to).unwrap();
            fs::read(to).unwrap()
        };
        assert_eq!(made(["a", "b"], 0o640, 0), made(["b", "a"], 0o600, 9999));
        assert_ne!(made(["a", "b"], 0o640, 0), made(["a", "b"], 0o755, 0));
    }

    #[test]
    fn what_is_ours_is_forgotten_and_no_more() {
        let target = tempfile::tempdir().unwrap();
        let fingerprints = target.path().join("dist/.fingerprint");
        for name in ["nearpage-c-1a", "xtask-2b", "libc-3c"] {
            fs::create_dir_all(fingerprints.join(name)).unwrap();
        }
        forget(target.path()).unwrap();
        let left: Vec<_> = fs::read_dir(&fingerprints).unwrap().flatten().collect();
        assert_eq!(left.len(), 1);
        assert_eq!(left[0].file_name(), "libc-3c");
        forget(&target.path().join("not made yet")).unwrap();
    }
}
