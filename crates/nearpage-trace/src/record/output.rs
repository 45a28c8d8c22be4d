//! Where the bundle goes: claimed before anything else, as it was unless the bundle is finished.
//!
//! A bundle takes its name when it is complete. It is written beside that name and renamed, so nobody finds a part of it.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Seek, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use nearpage_machine::{OutputFolder, Owner, open_found};
use rustix::fs::{Mode, OFlags};

use super::archive::Files;
use super::compress::zstd;
use super::control::Control;
use super::error::{OutputError, RecordError};
use super::system;

/// How many numbers are tried behind a name.
const NUMBERS_TRIED: u32 = 10_000;

/// A place for a bundle, empty as yet. Dropped, it is as it was.
pub struct Output {
    place: Place,
    /// The name of the bundle.
    name: String,
}

enum Place {
    Path(Claim),
    Stream(Box<dyn Write + Send>),
}

/// A path that was claimed.
struct Claim {
    /// As it was asked for.
    asked: PathBuf,
    folder: OutputFolder,
    name: OsString,
    /// Whose the file is that the bundle replaces, if one was there before, and who may read it.
    older: Option<(Owner, Permissions)>,
    /// What was made for a bundle that is a folder, until it is whole.
    unfinished: Option<OutputFolder>,
    format: Format,
    is_finished: bool,
}

/// What a bundle is written as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Format {
    Archive(Packing),
    Folder,
}

/// How an archive is packed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Packing {
    Zstd,
    Gzip,
    Plain,
}

/// Names of archives end so.
const ENDINGS: [(&str, Packing); 4] = [
    (".tar.zst", Packing::Zstd),
    (".tar.gz", Packing::Gzip),
    (".tgz", Packing::Gzip),
    (".tar", Packing::Plain),
];

impl std::fmt::Debug for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Output").field("name", &self.name).field("path", &self.path()).finish()
    }
}

impl Output {
    /// Claims a path. Its name says what the bundle is: `.tar.zst`, `.tar.gz` or `.tar`, without any of these the first; or a
    /// folder, with a `/` at its end. A file that exists is taken only if it is empty, as `mktemp` leaves it, and a folder
    /// likewise.
    ///
    /// The bundle is for its owner alone: a file that was there keeps its own, a new one is this process's user's; or of
    /// `owner`, who called `sudo`, where that user could have made it.
    ///
    /// # Errors
    ///
    /// There is no such folder, it may not be written, something is there, another user may have planted it, or the name
    /// ends in another way.
    pub fn claim(path: &Path, owner: Option<Owner>) -> Result<Output, RecordError> {
        let older = fs::metadata(path).ok();
        let format = format(path, older.as_ref())?;
        let claim = || -> io::Result<_> {
            if older.is_none() {
                let (folder, name) = OutputFolder::of(path, owner)?;
                folder.find(&name)?;
                make(&folder, &name, format)?;
                return Ok((folder, name, None));
            }
            let (folder, name, found) = OutputFolder::behind_links(path, owner)?;
            let found = found.ok_or(ErrorKind::NotFound)?;
            folder.check_own(&found)?;
            if format != Format::Folder {
                open_found(&found, OpenOptions::new().write(true))?;
            }
            let found = found.metadata()?;
            let older = (
                Owner { uid: found.uid(), gid: found.gid() },
                Permissions::from_mode(found.mode() & 0o777),
            );
            Ok((folder, name, Some(older)))
        };
        match claim() {
            Ok((folder, name, older)) => {
                let claim = Claim::new(path, folder, name, older, format);
                Ok(Output { place: Place::Path(claim), name: bundle_name(path) })
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let folder = folder_of(path).into();
                Err(OutputError::NoFolder { path: path.into(), folder }.into())
            }
            Err(error) if is_for_root(&error) => Err(RecordError::NotRoot),
            Err(source) => Err(OutputError::Unwritable { path: path.into(), source }.into()),
        }
    }

    /// Claims a file in this folder whose name nobody has: `nearpage-NAME.tar.zst`, or with a number.
    ///
    /// # Errors
    ///
    /// This folder may not be written.
    pub fn claim_new(name: &str, owner: Option<Owner>) -> Result<Output, RecordError> {
        let plain = |c: char| if c.is_ascii_alphanumeric() || "._+-".contains(c) { c } else { '_' };
        let name: String = name.chars().map(plain).collect();
        for number in 1..NUMBERS_TRIED {
            let number = if number == 1 { String::new() } else { format!("-{number}") };
            let path = PathBuf::from(format!("nearpage-{name}{number}.tar.zst"));
            let format = Format::Archive(Packing::Zstd);
            let made = OutputFolder::of(&path, owner).and_then(|(folder, name)| {
                make(&folder, &name, format)?;
                Ok((folder, name))
            });
            match made {
                Ok((folder, file)) => {
                    let claim = Claim::new(&path, folder, file, None, format);
                    let name = bundle_name(&path);
                    return Ok(Output { place: Place::Path(claim), name });
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) if is_for_root(&error) => return Err(RecordError::NotRoot),
                Err(source) => return Err(OutputError::Unwritable { path, source }.into()),
            }
        }
        Err(OutputError::NoName { path: format!("nearpage-{name}.tar.zst").into() }.into())
    }

    /// A stream that gets the bundle as `.tar.zst`, when it is complete. `name` is what the bundle calls itself.
    pub fn stream(name: &str, stream: Box<dyn Write + Send>) -> Output {
        Output { place: Place::Stream(stream), name: name.into() }
    }

    /// Where it is; `None` for a stream.
    pub fn path(&self) -> Option<&Path> {
        match &self.place {
            Place::Path(claim) => Some(&claim.asked),
            Place::Stream(_) => None,
        }
    }

    /// The name of the bundle.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Tells `control` what is to be removed if this process ends at once.
    pub(super) fn register(&self, control: &Control) {
        if let Place::Path(claim) = &self.place {
            let made = claim.older.is_none().then(|| claim.name.clone());
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let folder = rustix::fs::open(claim.folder.here(), flags, Mode::empty());
            let Ok(folder) = folder else { return };
            control.set_unfinished(folder, made.into_iter().chain([claim.part()]));
        }
    }

    /// A file without a name, where the bundle has room.
    ///
    /// # Errors
    ///
    /// None can be made.
    pub(super) fn scratch(&self) -> Result<File, RecordError> {
        let folder = match &self.place {
            Place::Path(claim) => claim.folder.here(),
            Place::Stream(_) => std::env::temp_dir(),
        };
        let shown = self.path().map_or(&*folder, folder_of);
        tempfile::tempfile_in(&folder).map_err(RecordError::file(shown, "make a file in it"))
    }

    /// Writes the bundle. Gives its bytes.
    ///
    /// # Errors
    ///
    /// It cannot be written, or not all of it.
    pub(super) fn finish(
        self,
        files: &Files,
        epoch_s: u64,
        trace: &mut File,
    ) -> Result<u64, RecordError> {
        let mut archive = self.scratch()?;
        let (name, place) = (self.name, self.place);
        let mut claim = match place {
            Place::Path(claim) => claim,
            Place::Stream(stream) => {
                let shown = Path::new("standard output");
                let error = |error| RecordError::file(shown, "write it")(error);
                files.write_archive(&mut archive, &name, epoch_s, trace).map_err(error)?;
                return pack(Packing::Zstd, &mut archive, stream).map_err(error);
            }
        };
        let part = claim.part();
        let written = match claim.format {
            Format::Folder => claim.folder.create_folder(&part).and_then(|made| {
                let made = claim.unfinished.insert(made);
                files.write_folder(made, trace)
            }),
            Format::Archive(packing) => files
                .write_archive(&mut archive, &name, epoch_s, trace)
                .and_then(|_| claim.create_part(&part))
                .and_then(|file| pack(packing, &mut archive, file)),
        };
        let written = written.and_then(|bytes| Ok((bytes, claim.keep(&part)?)));
        match written.map_err(RecordError::file(&claim.asked, "write it"))? {
            (bytes, true) => Ok(bytes),
            (_, false) => {
                // Both are kept.
                let bundle = claim.asked.with_file_name(&part);
                Err(OutputError::Taken { path: claim.asked.clone(), bundle }.into())
            }
        }
    }
}

/// Makes what holds the name of a bundle.
fn make(folder: &OutputFolder, name: &OsStr, format: Format) -> io::Result<()> {
    match format {
        Format::Folder => folder.create_folder(name).map(drop),
        Format::Archive(_) => folder.create(name).map(drop),
    }
}

impl Claim {
    fn new(
        asked: &Path,
        folder: OutputFolder,
        name: OsString,
        older: Option<(Owner, Permissions)>,
        format: Format,
    ) -> Claim {
        let (asked, unfinished) = (asked.into(), None);
        Claim { asked, folder, name, older, unfinished, format, is_finished: false }
    }

    /// The name of the unfinished bundle.
    fn part(&self) -> OsString {
        let mut name = self.name.clone();
        name.push(format!(".{}.part", std::process::id()));
        name
    }

    /// The unfinished file. It is for those whom the file allows that it replaces.
    fn create_part(&self, part: &OsStr) -> io::Result<File> {
        let file = self.folder.create(part)?;
        if let Some((owner, permissions)) = &self.older {
            if file.metadata()?.uid() != owner.uid {
                fchown(&file, Some(owner.uid), Some(owner.gid))?;
            }
            file.set_permissions(permissions.clone())?;
        }
        Ok(file)
    }

    /// Gives the whole bundle its name; returns `false` if others have taken it, and the bundle stays beside it.
    fn keep(&mut self, part: &OsStr) -> io::Result<bool> {
        let made = self.unfinished.as_ref();
        if made.is_some_and(|made| !self.folder.holds(part, made)) {
            let message = format!("{} was replaced meanwhile", part.display());
            return Err(io::Error::other(message));
        }
        let is_vacant = self.folder.is_vacant(&self.name);
        if is_vacant {
            self.folder.rename(part, &self.name)?;
        }
        // Nobody else has entered it until now.
        made.map_or(Ok(()), OutputFolder::give)?;
        self.is_finished = true;
        Ok(is_vacant)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.is_finished {
            return;
        }
        // An error is on its way to the caller; a second one would hide it.
        if let Some(made) = &self.unfinished {
            let _ = made.clear();
        }
        let _ = self.folder.remove(&self.part());
        if self.older.is_none() && self.folder.is_vacant(&self.name) {
            let _ = self.folder.remove(&self.name);
        }
    }
}

/// Packs an archive into a file or stream. Gives the bytes.
fn pack(packing: Packing, archive: &mut File, drain: impl Write) -> io::Result<u64> {
    archive.rewind()?;
    let mut drain = Counting { drain, bytes: 0 };
    match packing {
        Packing::Zstd => zstd(archive, &mut drain)?,
        Packing::Gzip => {
            let mut encoder = GzEncoder::new(&mut drain, Compression::default());
            io::copy(archive, &mut encoder)?;
            encoder.finish()?;
        }
        Packing::Plain => _ = io::copy(archive, &mut drain)?,
    }
    drain.flush()?;
    Ok(drain.bytes)
}

struct Counting<W> {
    drain: W,
    bytes: u64,
}

impl<W: Write> Write for Counting<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.drain.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.drain.flush()
    }
}

/// What the bundle at a path is to be, if it can be there.
fn format(path: &Path, found: Option<&Metadata>) -> Result<Format, OutputError> {
    let own = || path.to_path_buf();
    let is_folder = path.as_os_str().as_encoded_bytes().ends_with(b"/");
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let ending = ENDINGS.iter().find(|(ending, _)| name.ends_with(ending));
    match found {
        Some(found) if found.is_dir() => match fs::read_dir(path).map(|mut all| all.next()) {
            Ok(None) => Ok(Format::Folder),
            _ => Err(OutputError::NotAFile { path: own() }),
        },
        Some(found) if !found.is_file() || is_folder => Err(OutputError::NotAFile { path: own() }),
        Some(found) if found.len() > 0 => Err(OutputError::NotEmpty { path: own() }),
        None if is_folder => Ok(Format::Folder),
        _ => match (ending, path.extension()) {
            (Some((_, packing)), _) => Ok(Format::Archive(*packing)),
            // Names that `mktemp` makes end in anything, and a name without an end promises nothing.
            (None, extension) if found.is_some() || extension.is_none() => {
                Ok(Format::Archive(Packing::Zstd))
            }
            (None, extension) => {
                let suffix = extension.unwrap_or_default().to_string_lossy();
                Err(OutputError::Suffix { path: own(), suffix: format!(".{suffix}") })
            }
        },
    }
}

fn bundle_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let plain = ENDINGS.iter().find_map(|(ending, _)| name.strip_suffix(ending));
    plain.map(str::to_owned).unwrap_or(name)
}

/// Whether what is refused here would not be to root, who is needed anyway: another place for the bundle does not help.
fn is_for_root(error: &io::Error) -> bool {
    error.kind() == ErrorKind::PermissionDenied && !system::is_root()
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A file for what the command prints: in memory where there is such a place, so that no disk is written.
///
/// # Errors
///
/// None can be made.
pub(super) fn memory_file() -> Result<File, RecordError> {
    let in_memory = tempfile::tempfile_in("/dev/shm");
    let folder = std::env::temp_dir();
    let anywhere = in_memory.or_else(|_| tempfile::tempfile_in(&folder));
    // It has no name: only who inherited it finds it, and opens it again as /dev/stdout, also as another user.
    let open_to_all = anywhere.and_then(|file| {
        file.set_permissions(Permissions::from_mode(0o666))?;
        Ok(file)
    });
    open_to_all.map_err(RecordError::file(&folder, "make a file in it"))
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::unpacked;

    fn why(path: &Path) -> String {
        Output::claim(path, None).unwrap_err().to_string()
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn files() -> Files {
        let mut files = Files::new();
        files.add("meta.json", b"{}".to_vec());
        files.add("before/zoneinfo", b"Node 0".to_vec());
        files
    }

    fn trace() -> File {
        let mut trace = tempfile::tempfile().unwrap();
        trace.write_all(b"a packed trace").unwrap();
        trace
    }

    #[test]
    fn a_bundle_is_for_its_owner_and_follows_no_link() {
        use std::os::unix::fs::symlink;
        let folder = tempfile::tempdir().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        for (name, expected) in [("a.tar", 0o600), ("b/", 0o700)] {
            let path = folder.path().join(name);
            let output = Output::claim(&path, None).unwrap();
            assert_eq!(mode(&path), expected, "{name}, claimed");
            output.finish(&files(), 0, &mut trace()).unwrap();
            assert_eq!(mode(&path), expected, "{name}");
        }
        let target = folder.path().join("target.tar");
        symlink(&target, folder.path().join("link.tar")).unwrap();
        assert!(Output::claim(&folder.path().join("link.tar"), None).is_err());
        assert!(!target.exists());
    }

    #[test]
    fn a_bundle_takes_nobodys_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.tar.zst");
        assert!(why(&folder.path().join("b/a.tar.zst")).contains("there is no folder"));
        fs::write(&path, "x").unwrap();
        assert!(why(folder.path()).contains("is no file"), "a folder with something in it");
        assert!(why(&path).contains("is not empty"));
        assert_eq!(fs::read(&path).unwrap(), b"x");
        fs::write(&path, "").unwrap();
        let output = Output::claim(&path, None).unwrap();
        assert_eq!(output.name(), "a");
        drop(output);
        assert!(path.exists());
        fs::remove_file(&path).unwrap();
        drop(Output::claim(&path, None).unwrap());
        assert!(names(folder.path()).is_empty());
        drop(Output::claim(&folder.path().join("folder/"), None).unwrap());
        assert!(names(folder.path()).is_empty());
    }

    #[test]
    fn a_bundle_is_what_its_name_says() {
        let folder = tempfile::tempdir().unwrap();
        let name = |name: &str| folder.path().join(name);
        fs::write(name("tmp.AbC"), "").unwrap();
        for (path, begin) in [
            ("a.tar.zst", &[0x28, 0xb5, 0x2f, 0xfd][..]),
            ("b.tar.gz", &[0x1f, 0x8b]),
            ("c.tar", b"c/meta.json"),
            ("plain", &[0x28, 0xb5, 0x2f, 0xfd]),
            ("tmp.AbC", &[0x28, 0xb5, 0x2f, 0xfd]),
        ] {
            let output = Output::claim(&name(path), None).unwrap();
            let bytes = output.finish(&files(), 7, &mut trace()).unwrap();
            let content = fs::read(name(path)).unwrap();
            assert_eq!((content.len() as u64, &content[..begin.len()]), (bytes, begin), "{path}");
            let mut archive =
                tar::Archive::new(unpacked(&*content, &nearpage_machine::Budget::DEFAULT).unwrap());
            let last = archive.entries().unwrap().last().unwrap().unwrap();
            assert!(last.path().unwrap().ends_with("trace.txt.zst"), "{path}");
        }
        let output = Output::claim(&name("d/"), None).unwrap();
        assert_eq!(output.finish(&files(), 7, &mut trace()).unwrap(), 2 + 6 + 14);
        assert_eq!(names(&name("d")), ["before", "meta.json", "trace.txt.zst"]);
        assert_eq!(fs::read(name("d/trace.txt.zst")).unwrap(), b"a packed trace");
        assert_eq!(names(folder.path()).len(), 6, "{:?}", names(folder.path()));
        for other in ["a.zip", "a.tar.bz2", "a.zst", "run-6.12"] {
            let message = why(&name(other));
            assert!(message.contains("expected a name that ends in .tar.zst"), "{message}");
        }
    }

    /// The command's user exchanges the unfinished folder for a link while root fills it: nothing goes behind the link.
    #[test]
    fn a_folder_that_its_user_exchanges_leads_nowhere() {
        use std::os::unix::fs::{chown, symlink};
        use std::sync::atomic::{AtomicBool, Ordering};

        use rustix::fs::{CWD, RenameFlags, renameat_with};

        if !system::is_root() {
            eprintln!("SKIPPED: a_folder_that_its_user_exchanges_leads_nowhere: needs root");
            return;
        }
        const OTHER: Owner = Owner { uid: 12_345, gid: 12_346 };
        let root = tempfile::tempdir().unwrap();
        let (home, secret) = (root.path().join("home"), root.path().join("secret"));
        fs::create_dir(&secret).unwrap();
        fs::write(secret.join("shadow"), "x").unwrap();
        fs::create_dir(&home).unwrap();
        chown(&home, Some(OTHER.uid), Some(OTHER.gid)).unwrap();
        let mut files = files();
        (0..300).for_each(|number| files.add(&format!("after/{number}"), vec![0; 4096]));
        let mut exchanged = 0;
        for number in 0..200 {
            let output = Output::claim(&home.join(format!("{number}/")), Some(OTHER)).unwrap();
            let (is_done, is_hit) = (AtomicBool::new(false), AtomicBool::new(false));
            let part = home.join(format!("{number}.{}.part", std::process::id()));
            let link = home.join(format!("link{number}"));
            symlink(&secret, &link).unwrap();
            std::thread::scope(|threads| {
                threads.spawn(|| {
                    while !is_done.load(Ordering::Relaxed) {
                        if renameat_with(CWD, &link, CWD, &part, RenameFlags::EXCHANGE).is_ok() {
                            return is_hit.store(true, Ordering::Relaxed);
                        }
                    }
                });
                let _ = output.finish(&files, 7, &mut trace());
                is_done.store(true, Ordering::Relaxed);
            });
            assert_eq!(names(&secret), ["shadow"]);
            assert_eq!(fs::metadata(secret.join("shadow")).unwrap().uid(), 0);
            assert_eq!(fs::metadata(&secret).unwrap().uid(), 0);
            exchanged += u32::from(is_hit.into_inner());
            if exchanged == 3 {
                return;
            }
        }
        panic!("the folder was exchanged {exchanged} times: nothing was tested");
    }

    #[test]
    fn a_stream_gets_the_whole_bundle() {
        let (mut reader, writer) = io::pipe().unwrap();
        let reading = std::thread::spawn(move || {
            let mut content = Vec::new();
            reader.read_to_end(&mut content).map(|_| content)
        });
        let output = Output::stream("s", Box::new(writer));
        let bytes = output.finish(&files(), 7, &mut trace()).unwrap();
        let content = reading.join().unwrap().unwrap();
        assert_eq!(content.len() as u64, bytes);
        let mut archive =
            tar::Archive::new(unpacked(&*content, &nearpage_machine::Budget::DEFAULT).unwrap());
        let first = archive.entries().unwrap().next().unwrap().unwrap();
        assert_eq!(first.path().unwrap().to_str(), Some("s/meta.json"));
    }

    #[test]
    fn a_file_that_others_wrote_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.tar.zst");
        let output = Output::claim(&path, None).unwrap();
        fs::write(&path, "precious").unwrap();
        let error = output.finish(&files(), 7, &mut trace()).unwrap_err();
        let RecordError::Output(OutputError::Taken { bundle, .. }) = error else {
            panic!("{error}");
        };
        assert_eq!(fs::read(&path).unwrap(), b"precious");
        assert!(fs::read(bundle).unwrap().starts_with(&[0x28, 0xb5, 0x2f, 0xfd]));
        // Nor is it removed if there is no bundle.
        let other = folder.path().join("b.tar.zst");
        let output = Output::claim(&other, None).unwrap();
        fs::write(&other, "precious").unwrap();
        drop(output);
        assert_eq!(fs::read(&other).unwrap(), b"precious");
    }
}
