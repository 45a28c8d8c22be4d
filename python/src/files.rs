//! The files of a bundle, whatever it is, by the bounded readers of the libraries. Another thread reads; it is a few parts ahead.

use std::fs;
use std::io::{self, BufReader, Read};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Mutex, MutexGuard};
use std::thread;

use nearpage_machine::{Budget, Packing, Unpacking, each_tar_file, open_beneath};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::error;
use crate::guard::{PERIOD, caught};

/// Bytes that are passed on at once, and parts that wait to be asked for.
const PART_BYTES: usize = 256 << 10;
const PARTS_AHEAD: usize = 4;
/// Names of all files of a bundle: some hundred there are.
const NAMES_BYTES_MAX: usize = 4 << 20;
/// Folders within a bundle: it has captures, and few within.
const DEPTH_MAX: usize = 32;
/// How a stream begins that is packed.
const MAGIC_BYTES: usize = 512;

enum Told {
    /// A file begins: its name, and its bytes where it is passed on as it is stored.
    File(String, Option<u64>),
    Part(Vec<u8>),
    Failed(io::Error),
}

/// What is asked for next.
#[derive(Default)]
struct Course {
    told: Option<Receiver<Told>>,
    part: Vec<u8>,
    given: usize,
    /// The next file, which has begun.
    next: Option<(String, Option<u64>)>,
}

/// The files of a bundle, one after the other.
#[pyclass(frozen, module = "nearpage")]
pub(crate) struct BundleFiles {
    course: Mutex<Course>,
}

#[pymethods]
impl BundleFiles {
    #[staticmethod]
    #[pyo3(signature = (path, *, stored = false))]
    fn open(path: PathBuf, stored: bool) -> PyResult<BundleFiles> {
        error::there(&path)?;
        let (sender, told) = mpsc::sync_channel(PARTS_AHEAD);
        let worker = move || {
            let result = caught(|| each_file(&path, stored, &sender));
            let failed = match result {
                Ok(Ok(())) => return,
                Ok(Err(error)) => error,
                Err(panicked) => io::Error::other(panicked.message()),
            };
            // Nobody may be listening.
            let _ = sender.send(Told::Failed(failed));
        };
        thread::Builder::new().name("nearpage".into()).spawn(worker)?;
        let course = Course { told: Some(told), ..Course::default() };
        Ok(BundleFiles { course: Mutex::new(course) })
    }

    /// The next file's name, and its bytes if it is given as it is stored. What is left of the one before is passed over.
    fn next(&self, py: Python<'_>) -> PyResult<Option<(String, Option<u64>)>> {
        let mut course = self.course()?;
        while course.next.is_none() && course.more(py)? {}
        course.part.clear();
        course.given = 0;
        Ok(course.next.take())
    }

    /// At most so many bytes of the file; none at its end.
    fn read<'py>(&self, py: Python<'py>, bytes: usize) -> PyResult<Bound<'py, PyBytes>> {
        let mut course = self.course()?;
        while course.given == course.part.len() && course.next.is_none() && course.more(py)? {}
        let left = &course.part[course.given..];
        let given = PyBytes::new(py, &left[..left.len().min(bytes)]);
        course.given += given.as_bytes().len();
        Ok(given)
    }
}

impl BundleFiles {
    /// Whoever waited for another thread here would keep the interpreter from it.
    fn course(&self) -> PyResult<MutexGuard<'_, Course>> {
        let in_use = |_| PyOSError::new_err("another thread reads these files");
        self.course.try_lock().map_err(in_use)
    }
}

impl Course {
    /// Waits for a part or for the next file; `false` at the end of all.
    fn more(&mut self, py: Python<'_>) -> PyResult<bool> {
        loop {
            let Some(told) = self.told.take() else { return Ok(false) };
            let (answer, told) = py.detach(move || (told.recv_timeout(PERIOD), told));
            match answer {
                Ok(Told::File(name, bytes)) => self.next = Some((name, bytes)),
                Ok(Told::Part(part)) => (self.part, self.given) = (part, 0),
                Ok(Told::Failed(error)) => return Err(PyOSError::new_err(error.to_string())),
                Err(RecvTimeoutError::Disconnected) => return Ok(false),
                Err(RecvTimeoutError::Timeout) => {
                    self.told = Some(told);
                    py.check_signals()?;
                    continue;
                }
            }
            self.told = Some(told);
            return Ok(true);
        }
    }
}

fn each_file(path: &Path, stored: bool, to: &SyncSender<Told>) -> io::Result<()> {
    let mut names = NAMES_BYTES_MAX;
    let mut tell = |of: &Unpacking, name: &str, bytes: u64, content: &mut dyn Read| {
        names = names.checked_sub(name.len()).ok_or_else(|| {
            let most = NAMES_BYTES_MAX >> 20;
            io::Error::other(format!("more than {most} MiB of names of files, expected a bundle"))
        })?;
        let size = stored.then_some(bytes);
        if to.send(Told::File(name.to_owned(), size)).is_err() {
            return Ok(ControlFlow::Break(()));
        }
        match stored {
            true => pass_on(&mut content.take(bytes), to),
            false => pass_on(&mut unpacked(of, content)?, to),
        }
    };
    if path.is_dir() {
        return each_of_folder(path, "", 0, &mut tell).map(drop);
    }
    let unpacking = Unpacking::new(&Budget::DEFAULT);
    let file = unpacking.file(fs::File::open(path)?);
    // The bytes of a member are asked for in folders alone.
    each_tar_file(unpacked(&unpacking, file)?, |name, content| tell(&unpacking, name, 0, content))
}

type Tell<'t> = dyn FnMut(&Unpacking, &str, u64, &mut dyn Read) -> io::Result<ControlFlow<()>> + 't;

/// The regular files of a folder, and of those within it. Links are no files of a bundle.
fn each_of_folder(
    root: &Path,
    folder: &str,
    depth: usize,
    tell: &mut Tell<'_>,
) -> io::Result<ControlFlow<()>> {
    if depth > DEPTH_MAX {
        return Err(io::Error::other(format!(
            "{DEPTH_MAX} folders in each other, expected a bundle"
        )));
    }
    let entries = fs::read_dir(root.join(folder))?.collect::<io::Result<Vec<_>>>()?;
    let mut entries: Vec<_> = entries.into_iter().map(|entry| (entry.file_name(), entry)).collect();
    entries.sort_by(|one, other| one.0.cmp(&other.0));
    for (name, entry) in entries {
        let Some(name) = name.to_str() else { continue };
        let path = if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") };
        let kind = entry.file_type()?;
        let flow = if kind.is_dir() {
            each_of_folder(root, &path, depth + 1, tell)?
        } else if kind.is_file() {
            // It may be a link by now: opened beneath the folder, it leads nowhere else.
            let Some(mut file) = open_beneath(root, &path)? else { continue };
            let bytes = file.metadata()?.len();
            tell(&Unpacking::new(&Budget::DEFAULT), &path, bytes, &mut file)?
        } else {
            continue;
        };
        if flow.is_break() {
            return Ok(flow);
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// A stream, unpacked if it is packed.
fn unpacked<'a>(of: &Unpacking, stream: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
    let mut stream = BufReader::with_capacity(PART_BYTES, stream);
    let mut begin = Vec::new();
    (&mut stream).take(MAGIC_BYTES as u64).read_to_end(&mut begin)?;
    let packing = Packing::of(&begin);
    let whole = io::Cursor::new(begin).chain(stream);
    match packing {
        None | Some(Packing::Tar) => Ok(Box::new(whole)),
        Some(packing) => of.stream(packing, whole),
    }
}

fn pass_on(content: &mut dyn Read, to: &SyncSender<Told>) -> io::Result<ControlFlow<()>> {
    loop {
        let mut part = Vec::with_capacity(PART_BYTES);
        (&mut *content).take(PART_BYTES as u64).read_to_end(&mut part)?;
        if part.is_empty() {
            return Ok(ControlFlow::Continue(()));
        }
        if to.send(Told::Part(part)).is_err() {
            return Ok(ControlFlow::Break(()));
        }
    }
}
