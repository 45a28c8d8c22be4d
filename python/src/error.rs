//! Errors of the libraries as exceptions. The classes are those of `nearpage/errors.py`; each carries the place and what is
//! accepted there.

use std::fmt::Display;
use std::io::ErrorKind;
use std::path::Path;

use nearpage_machine::InputError;
use nearpage_replay::ReplayError;
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyModule;

/// A class of `nearpage.errors`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Class {
    Argument,
    Machine,
    Replay,
    Missing,
    Lab,
    Log,
    Memory,
    Internal,
}

impl Class {
    fn name(self) -> &'static str {
        match self {
            Class::Argument => "ArgumentError",
            Class::Machine => "MachineError",
            Class::Replay => "ReplayError",
            Class::Missing => "MissingError",
            Class::Lab => "LabError",
            Class::Log => "LogError",
            Class::Memory => "AllocationError",
            Class::Internal => "InternalError",
        }
    }

    /// An exception of the class. Messages of the libraries end with what is accepted: `PLACE: PROBLEM, expected WHAT`, and where
    /// there are names to choose from `PROBLEM; scenarios: NAMES`.
    pub(crate) fn error(self, place: Option<String>, message: impl Display) -> PyErr {
        let message = message.to_string();
        let accepted = |before: &str| message.split_once(before).map(|(_, after)| after.to_owned());
        let expected = [", expected ", "; scenarios: ", "; tables: ", "; keys: "];
        let expected = expected.into_iter().find_map(accepted);
        Python::attach(|py| match class(py, self.name()) {
            Ok(class) => match class.call1((message, place, expected)) {
                Ok(exception) => PyErr::from_value(exception),
                Err(error) => error,
            },
            Err(error) => error,
        })
    }
}

fn class<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    static ERRORS: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let module = ERRORS.get_or_try_init(py, || py.import("nearpage.errors").map(Bound::unbind));
    module?.bind(py).getattr(name)
}

/// Ctrl-C, with what was finished before.
pub(crate) fn interrupted(py: Python<'_>, finished: Bound<'_, PyAny>) -> PyErr {
    let exception = class(py, "Interrupted").and_then(|class| class.call1((finished,)));
    exception.map_or_else(|error| error, PyErr::from_value)
}

/// Why there is no machine, with the line or file.
pub(crate) fn machine(error: &InputError) -> PyErr {
    let place = match error {
        InputError::Unreadable { input, .. } => Some(input.clone()),
        InputError::Content { place, .. } => Some(place.to_string()),
        InputError::Sysfs(error) => error.file().map(str::to_owned),
        _ => None,
    };
    Class::Machine.error(place, error)
}

/// Refuses the path of a bundle that is not there; Python has a class of its own for that.
pub(crate) fn there(path: &Path) -> PyResult<()> {
    match path.symlink_metadata() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let place = path.display().to_string();
            let message = format!("{place}: {error}, expected a bundle");
            Err(Class::Missing.error(Some(place), message))
        }
        _ => Ok(()),
    }
}

/// Why there is no result. The input is the bundle, or a file of it.
pub(crate) fn failed(input: &str, error: &ReplayError) -> PyErr {
    match error {
        ReplayError::Stopped(_) => PyKeyboardInterrupt::new_err(()),
        _ => {
            let message = error.to_string();
            // Messages name the file, and within it the byte or the line.
            let place = message.split(": ").next().filter(|_| message.contains(": "));
            Class::Replay.error(Some(place.unwrap_or(input).to_owned()), &message)
        }
    }
}
