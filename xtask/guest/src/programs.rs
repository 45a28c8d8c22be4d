//! Programs that run in the machine: what they print and how they end is sent, under their names.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};

use crate::port::Port;

/// Programs that run beside what follows, by name.
#[derive(Default)]
pub struct Running(HashMap<String, (Child, String)>);

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
    /// Begins a program.
    pub fn begin(&mut self, name: &str, words: &str) -> io::Result<()> {
        let (mut command, printed) = command(name, words)?;
        self.0.insert(name.to_owned(), (command.spawn()?, printed));
        Ok(())
    }

    /// Waits for its end.
    pub fn finish(&mut self, port: &mut Port, name: &str) -> io::Result<()> {
        let running = self.0.remove(name);
        let (mut child, printed) = running.ok_or_else(|| io::Error::other("was not begun"))?;
        send(port, name, child.wait()?, &printed)
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
