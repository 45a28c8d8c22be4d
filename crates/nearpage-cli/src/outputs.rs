//! The one way in which commands make files.
//!
//! A command that reads a stranger's file has given up the right to make any. A second process, its clerk, was started before,
//! which knows the outputs of the command line and does no more than make them: it hands out descriptors to write to, and gives
//! what is finished its name. Other commands do the same work themselves.

mod clerk;
mod desk;

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use nearpage_report::file::{WriteError, no_input};

pub(crate) use clerk::Clerk;
pub(crate) use desk::Desk;

/// What an output is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// A file that takes its name when it is whole.
    Page,
    /// The same; all may read it, as the process's mask allows.
    PageForAll,
    /// A file where there is none.
    New,
    /// A tape, which may be there.
    Tape,
    /// A folder where there is none, with a folder `before`.
    Folder,
}

/// What is asked for an output. Each has an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Question<'q> {
    /// An unnamed file.
    Scratch,
    /// Whether a page can be written; which file it would replace.
    Check(usize),
    /// Where to write it; of a folder nothing.
    Begin(usize),
    /// A file in a folder.
    Add(usize, &'q str),
    /// It is whole.
    Keep(usize),
    /// It is not wanted any more.
    Drop(usize),
    /// Nothing is wanted any more.
    End,
}

/// An answer: what it is about, and a descriptor.
#[derive(Debug, Default)]
struct Answer {
    /// Device and inode of the file that is replaced.
    older: Option<(u64, u64)>,
    file: Option<File>,
}

/// Who answers.
static ANSWERS: OnceLock<Answers> = OnceLock::new();

enum Answers {
    Clerk(Clerk),
    Itself(Mutex<Desk>),
}

/// From now on a clerk makes the outputs of this process, and its unnamed files.
pub(crate) fn leave_to(clerk: Clerk) {
    nearpage_trace::make_scratch_files_by(|| ask(Question::Scratch).and_then(Answer::file));
    let _ = ANSWERS.set(Answers::Clerk(clerk));
}

/// Waits until what was begun and not kept is gone.
pub(crate) fn end() {
    if ANSWERS.get().is_some() {
        let _ = ask(Question::End);
    }
}

fn answers() -> &'static Answers {
    ANSWERS.get_or_init(|| Answers::Itself(Mutex::new(Desk::default())))
}

fn ask(question: Question<'_>) -> io::Result<Answer> {
    match answers() {
        Answers::Clerk(clerk) => clerk.ask(question),
        Answers::Itself(desk) => {
            desk.lock().unwrap_or_else(PoisonError::into_inner).answer(question)
        }
    }
}

impl Answer {
    fn file(self) -> io::Result<File> {
        self.file.ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

/// An output of the command line. What was begun and not kept is removed.
#[derive(Debug)]
pub(crate) struct Output {
    path: PathBuf,
    number: usize,
}

impl Output {
    fn of(kind: Kind, path: &Path) -> io::Result<Output> {
        let number = match answers() {
            Answers::Clerk(clerk) => clerk.number(kind, path)?,
            Answers::Itself(desk) => {
                desk.lock().unwrap_or_else(PoisonError::into_inner).add(kind, path)
            }
        };
        Ok(Output { path: path.into(), number })
    }

    /// A page, which replaces none of the inputs.
    ///
    /// # Errors
    ///
    /// [`WriteError::Unwritable`], [`WriteError::IsInput`].
    pub(crate) fn page(kind: Kind, path: &Path, inputs: &[&Path]) -> Result<Output, WriteError> {
        let asked = Output::of(kind, path)
            .and_then(|output| Ok((ask(Question::Check(output.number))?.older, output)));
        let (older, output) = asked.map_err(|source| WriteError::Unwritable {
            path: nearpage_machine::shown(path).to_string(),
            source,
        })?;
        no_input(path, older, inputs)?;
        Ok(output)
    }

    /// A file or folder of another kind, where it is begun at once.
    ///
    /// # Errors
    ///
    /// It cannot be made.
    pub(crate) fn begun(kind: Kind, path: &Path) -> io::Result<(Output, Option<File>)> {
        let output = Output::of(kind, path)?;
        let file = ask(Question::Begin(output.number))?.file;
        Ok((output, file))
    }

    /// Where to write a page.
    ///
    /// # Errors
    ///
    /// The path became something else meanwhile, or it cannot be written.
    pub(crate) fn begin(&self) -> io::Result<File> {
        ask(Question::Begin(self.number)).and_then(Answer::file)
    }

    /// A file in a folder.
    ///
    /// # Errors
    ///
    /// It cannot be made.
    pub(crate) fn add(&self, name: &str) -> io::Result<File> {
        ask(Question::Add(self.number, name)).and_then(Answer::file)
    }

    /// Gives what is whole its name.
    ///
    /// # Errors
    ///
    /// The path became something else meanwhile.
    pub(crate) fn keep(&self) -> io::Result<()> {
        ask(Question::Keep(self.number)).map(drop)
    }

    /// Writes a page. The file has it completely, or is as it was before.
    ///
    /// # Errors
    ///
    /// [`WriteError::Unwritten`].
    pub(crate) fn write(&self, page: &str) -> Result<(), WriteError> {
        let write = || {
            let mut file = self.begin()?;
            file.write_all(page.as_bytes())?;
            if file.metadata()?.is_file() {
                // Some file systems say only here that they are full.
                file.sync_all()?;
            }
            self.keep()
        };
        write().map_err(|source| WriteError::Unwritten {
            path: nearpage_machine::shown(&self.path).to_string(),
            source,
        })
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        // What is on its way to the user is told without this.
        let _ = ask(Question::Drop(self.number));
    }
}
