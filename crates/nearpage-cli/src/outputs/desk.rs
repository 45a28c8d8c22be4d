//! The work of a clerk: outputs, as far as they are.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use nearpage_machine::{OutputFolder, Owner};
use nearpage_report::file::{PageFile, Unfinished, WriteError};
use nearpage_watch::TapeWriter;

use super::{Answer, Kind, Question};
use crate::sudo;

/// The outputs of a command line.
#[derive(Debug, Default)]
pub(crate) struct Desk {
    outputs: Vec<Output>,
}

#[derive(Debug)]
struct Output {
    kind: Kind,
    path: PathBuf,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Nothing was done, or all of it.
    Idle,
    Checked(PageFile),
    Begun(PageFile, Unfinished),
    Folder(NewFolder),
    Failed(io::Error),
}

impl Desk {
    /// The desk of a clerk. Folders are made now, under another name: whoever gives up rights keeps that to read them.
    pub(crate) fn new(outputs: &[(Kind, PathBuf)]) -> Desk {
        let mut desk = Desk::default();
        for (kind, path) in outputs {
            let number = desk.add(*kind, path);
            if *kind == Kind::Folder {
                desk.outputs[number].make_folder();
            }
        }
        desk
    }

    /// One more output. Gives its number.
    pub(super) fn add(&mut self, kind: Kind, path: &Path) -> usize {
        self.outputs.push(Output { kind, path: path.into(), state: State::Idle });
        self.outputs.len() - 1
    }

    /// Where the folders are that were made.
    pub(crate) fn folders(&self) -> impl Iterator<Item = PathBuf> {
        self.outputs.iter().filter_map(|output| match &output.state {
            State::Folder(folder) => Some(folder.made.here()),
            _ => None,
        })
    }

    /// Forgets what was made, which is another process's by now.
    pub(super) fn leave(mut self) {
        for output in &mut self.outputs {
            if let State::Folder(folder) = &mut output.state {
                folder.is_kept = true;
            }
        }
    }

    pub(super) fn answer(&mut self, question: Question<'_>) -> io::Result<Answer> {
        match question {
            Question::Scratch => Ok(Answer { file: Some(tempfile::tempfile()?), older: None }),
            Question::Check(number) => self.output(number)?.check(),
            Question::Begin(number) => self.output(number)?.begin(),
            Question::Add(number, name) => self.output(number)?.add(name),
            Question::Keep(number) => self.output(number)?.keep(),
            Question::Drop(number) => {
                self.output(number)?.state = State::Idle;
                Ok(Answer::default())
            }
            Question::End => {
                self.outputs.clear();
                Ok(Answer::default())
            }
        }
    }

    fn output(&mut self, number: usize) -> io::Result<&mut Output> {
        Ok(self.outputs.get_mut(number).ok_or(ErrorKind::InvalidInput)?)
    }
}

impl Output {
    fn check(&mut self) -> io::Result<Answer> {
        let page = PageFile::at(&self.path, &[], sudo::caller()).map_err(|error| match error {
            WriteError::Unwritable { source, .. } => source,
            other => io::Error::other(other),
        })?;
        let page = if self.kind == Kind::PageForAll { page.for_all() } else { page };
        let older = page.older();
        self.state = State::Checked(page);
        Ok(Answer { older, file: None })
    }

    fn begin(&mut self) -> io::Result<Answer> {
        let file = match self.kind {
            Kind::Page | Kind::PageForAll => {
                match std::mem::replace(&mut self.state, State::Idle) {
                    State::Checked(page) => {
                        let begun = page.begin()?;
                        let file = begun.file().try_clone()?;
                        self.state = State::Begun(page, begun);
                        Some(file)
                    }
                    _ => return Err(ErrorKind::InvalidInput.into()),
                }
            }
            Kind::New => {
                let (folder, name) = OutputFolder::of(&self.path, sudo::caller())?;
                Some(folder.create(&name)?)
            }
            Kind::Tape => Some(TapeWriter::file(&self.path, sudo::caller())?),
            Kind::Folder => {
                if matches!(self.state, State::Idle) {
                    self.make_folder();
                }
                match std::mem::replace(&mut self.state, State::Idle) {
                    State::Failed(error) => return Err(error),
                    state => self.state = state,
                }
                None
            }
        };
        Ok(Answer { file, older: None })
    }

    fn make_folder(&mut self) {
        self.state = match NewFolder::at(&self.path, sudo::caller()) {
            Ok(folder) => State::Folder(folder),
            Err(error) => State::Failed(error),
        };
    }

    fn add(&mut self, name: &str) -> io::Result<Answer> {
        let State::Folder(folder) = &self.state else { return Err(ErrorKind::InvalidInput.into()) };
        Ok(Answer { file: Some(folder.add(name)?), older: None })
    }

    fn keep(&mut self) -> io::Result<Answer> {
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Begun(page, begun) => {
                begun.keep()?;
                self.state = State::Checked(page);
            }
            State::Folder(folder) => folder.keep()?,
            _ => return Err(ErrorKind::InvalidInput.into()),
        }
        Ok(Answer::default())
    }
}

/// A folder under another name, with a folder `before` in it. Dropped, it is removed.
#[derive(Debug)]
struct NewFolder {
    place: OutputFolder,
    name: OsString,
    part: OsString,
    made: OutputFolder,
    before: OutputFolder,
    is_kept: bool,
}

/// The folder in a folder.
const BEFORE: &str = "before";

impl NewFolder {
    fn at(path: &Path, owner: Option<Owner>) -> io::Result<NewFolder> {
        let (place, name) = OutputFolder::of(path, owner)?;
        vacant(&place, &name)?;
        let mut part = name.clone();
        part.push(format!(".{}.part", std::process::id()));
        let made = place.create_folder(&part)?;
        let before = made.create_folder(BEFORE.as_ref())?;
        Ok(NewFolder { place, name, part, made, before, is_kept: false })
    }

    fn add(&self, name: &str) -> io::Result<File> {
        match name.split_once('/') {
            Some((BEFORE, name)) if !name.contains('/') => self.before.create(name.as_ref()),
            None => self.made.create(name.as_ref()),
            Some(_) => Err(ErrorKind::InvalidInput.into()),
        }
    }

    fn keep(mut self) -> io::Result<()> {
        // Others may have put something there meanwhile.
        vacant(&self.place, &self.name)?;
        if !self.place.holds(&self.part, &self.made) {
            return Err(io::Error::other("it was replaced meanwhile"));
        }
        self.place.rename(&self.part, &self.name)?;
        self.is_kept = true;
        self.before.give()?;
        // Nobody else has entered it until now.
        self.made.give()
    }
}

fn vacant(place: &OutputFolder, name: &OsString) -> io::Result<()> {
    match place.find(name)? {
        None => Ok(()),
        Some(_) => Err(io::Error::new(ErrorKind::AlreadyExists, "it is there already")),
    }
}

impl Drop for NewFolder {
    fn drop(&mut self) {
        if !self.is_kept {
            // An error is on its way to the user; a second one would hide it.
            let _ = self.made.clear();
            let _ = self.place.remove(&self.part);
        }
    }
}
