//! Programs that run in the machine: what they print and how they end is sent, under their names.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use crate::port::Port;

/// Programs that run beside what follows, by name: again and again, so that none has ended before what it is to meet.
#[derive(Default)]
pub struct Running(HashMap<String, Begun>);

struct Begun {
    is_enough: Arc<AtomicBool>,
    /// How the last one ended, and the file to which it printed.
    last: JoinHandle<io::Result<(ExitStatus, String)>>,
}

/// A program's words, what it prints going to a file. Words before it that are `KEY=VALUE` are of its environment.
fn command(name: &str, words: &str) -> io::Result<(Command, String)> {
    let mut words = words.split_whitespace().peekable();
    let mut variables = Vec::new();
    while let Some(variable) = words.peek().and_then(|word| word.split_once('=')) {
        variables.push(variable);
        words.next();
    }
    let program = words.next().ok_or_else(|| io::Error::other("names no program"))?;
    let printed = format!("/tmp/{name}.printed");
    let file = File::create(&printed)?;
    let mut command = Command::new(program);
    command.args(words).envs(variables).stdin(Stdio::null());
    command.stdout(file.try_clone()?).stderr(file);
    Ok((command, printed))
}

/// Runs a program to its end.
pub fn run(port: &mut Port, name: &str, words: &str) -> io::Result<()> {
    let (mut command, printed) = command(name, words)?;
    let status = command.status()?;
    send(port, name, status, &printed)
}

impl Running {
    /// Begins a program; whenever it succeeded, it is begun again.
    pub fn begin(&mut self, name: &str, words: &str) -> io::Result<()> {
        let is_enough = Arc::new(AtomicBool::new(false));
        let (until, name_of, words) = (Arc::clone(&is_enough), name.to_owned(), words.to_owned());
        let last = thread::Builder::new().spawn(move || {
            loop {
                let (mut command, printed) = command(&name_of, &words)?;
                let status = command.status()?;
                if !status.success() || until.load(Ordering::Relaxed) {
                    return Ok((status, printed));
                }
            }
        })?;
        self.0.insert(name.to_owned(), Begun { is_enough, last });
        Ok(())
    }

    /// Lets the one that runs end, and sends how it did. One that failed was the last.
    pub fn finish(&mut self, port: &mut Port, name: &str) -> io::Result<()> {
        let Begun { is_enough, last } =
            self.0.remove(name).ok_or_else(|| io::Error::other("was not begun"))?;
        is_enough.store(true, Ordering::Relaxed);
        let (status, printed) =
            last.join().map_err(|_| io::Error::other("its thread panicked"))??;
        send(port, name, status, &printed)
    }
}

fn send(port: &mut Port, name: &str, status: ExitStatus, printed: &str) -> io::Result<()> {
    let end = match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit {code}\n"),
        (None, signal) => format!("signal {}\n", signal.unwrap_or(0)),
    };
    let mut all = end.into_bytes();
    all.extend(std::fs::read(printed)?);
    port.send(name, &all)
}
