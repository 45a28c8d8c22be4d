//! `nearpage top` as a user runs it: streams, and panes in a pseudo-terminal.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::tidy::root;

const MACHINE: &str = "bundles/q612-n2-mixed.tar.zst";

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nearpage"));
    command.current_dir(root()).arg("top").args(arguments);
    command
}

fn text(arguments: &[&str]) -> String {
    let output = command(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn streams_have_what_the_machine_has() {
    let once = text(&["--once", "--sysroot", MACHINE]);
    assert!(
        once.contains("Machine   bundles/q612-n2-mixed.tar.zst")
            && once.contains("nothing is wrong"),
        "{once}"
    );
    assert!(once.lines().all(|line| line.chars().count() <= 80), "{once}");
    let csv = text(&["--csv", "-n", "2", "-d", "0.1", "--sysroot", MACHINE]);
    let columns = |line: &str| line.split(',').count();
    assert_eq!(csv.lines().count(), 1 + 2 * 3, "{csv}");
    assert!(csv.lines().all(|line| columns(line) == 12), "{csv}");
    let json = text(&["--json", "-n", "2", "-d", "0.1"]);
    for line in json.lines() {
        let document: Value = serde_json::from_str(line).unwrap();
        assert_eq!(document["schema"], 1);
        assert!(document["sample"]["zones"][0]["managed"].as_u64().unwrap() > 0);
        assert!(document["marks"].is_array());
    }
    assert_eq!(json.lines().count(), 2);
}

#[test]
fn wrong_usage_is_refused() {
    for arguments in
        [&["-d", "0"][..], &["-d", "x"], &["--json", "--csv"], &["--sysroot", "/nowhere"]]
    {
        assert_eq!(command(arguments).output().unwrap().status.code(), Some(2), "{arguments:?}");
    }
}

/// A program on a terminal of its own.
struct OnTerminal {
    child: Child,
    master: File,
    screen: vt100::Parser,
}

const PATIENCE: Duration = Duration::from_secs(20);

impl Drop for OnTerminal {
    fn drop(&mut self) {
        // Where a test failed, it may still run.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl OnTerminal {
    fn start(arguments: &[&str], columns: u16, rows: u16) -> OnTerminal {
        let size = libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        let (mut master, mut slave) = (-1, -1);
        // SAFETY: both descriptors are written by the call before they are read, and the size outlives it.
        let opened = unsafe {
            libc::openpty(&mut master, &mut slave, std::ptr::null_mut(), std::ptr::null(), &size)
        };
        assert_eq!(opened, 0, "{}", std::io::Error::last_os_error());
        // SAFETY: the call gave both, and nobody else has them.
        let (master, slave) =
            unsafe { (OwnedFd::from_raw_fd(master), OwnedFd::from_raw_fd(slave)) };
        let end = || Stdio::from(slave.try_clone().unwrap());
        let mut child = command(arguments);
        child.env("TERM", "xterm").stdin(end()).stdout(end()).stderr(end());
        let screen = vt100::Parser::new(rows.try_into().unwrap(), columns.try_into().unwrap(), 0);
        OnTerminal { child: child.spawn().unwrap(), master: File::from(master), screen }
    }

    /// Reads until the screen has some words; returns what was printed meanwhile.
    fn wait_for(&mut self, words: &[&str]) -> String {
        let begin = Instant::now();
        let mut seen = String::new();
        loop {
            let screen = self.screen.screen().contents();
            if words.iter().all(|word| screen.contains(word)) {
                return seen;
            }
            assert!(begin.elapsed() < PATIENCE, "not on the screen: {words:?}\n{screen}");
            seen += &self.read().unwrap_or_else(|| panic!("ended before {words:?}\n{screen}"));
        }
    }

    /// What it prints within a tenth of a second; `None` once it has closed the terminal.
    fn read(&mut self) -> Option<String> {
        let mut of = libc::pollfd { fd: self.master.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: the call has one descriptor to look at, which is open, and writes its answer.
        if unsafe { libc::poll(&mut of, 1, 100) } == 0 {
            return Some(String::new());
        }
        let mut buffer = [0; 4096];
        let length = self.master.read(&mut buffer).ok().filter(|&length| length > 0)?;
        self.screen.process(&buffer[..length]);
        Some(String::from_utf8_lossy(&buffer[..length]).into())
    }

    fn ends(mut self) -> String {
        let begin = Instant::now();
        let mut rest = String::new();
        while !rest.contains("\u{1b}[?1049l")
            && begin.elapsed() < PATIENCE
            && let Some(more) = self.read()
        {
            rest += &more;
        }
        while self.child.try_wait().unwrap().is_none() {
            assert!(begin.elapsed() < PATIENCE, "it goes on: {rest:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        rest
    }
}

#[test]
fn panes_come_and_the_terminal_is_restored() {
    let mut top = OnTerminal::start(&["--sysroot", MACHINE, "-d", "0.2"], 80, 24);
    let first = top.wait_for(&["[1 nodes]", "distance"]);
    assert!(first.contains("\u{1b}[?1049h"), "a screen of its own: {first:?}");
    top.master.write_all(b"2").unwrap();
    top.wait_for(&["[2 zones]", "DMA32"]);
    top.master.write_all(b"?").unwrap();
    top.wait_for(&["pauses"]);
    top.master.write_all(b"q").unwrap();
    assert!(top.ends().contains("\u{1b}[?1049l"));
}

/// Ctrl-C in raw mode is a key; a signal ends it too, and restores as well.
#[test]
fn a_signal_restores_the_terminal() {
    for by_key in [true, false] {
        let mut top = OnTerminal::start(&[], 40, 10);
        top.wait_for(&["nodes"]);
        match by_key {
            true => top.master.write_all(b"\x03").unwrap(),
            // SAFETY: the child is alive, or was not waited for yet: the id is its own.
            false => assert_eq!(unsafe { libc::kill(top.child.id() as i32, libc::SIGTERM) }, 0),
        }
        assert!(top.ends().contains("\u{1b}[?1049l"), "by key: {by_key}");
    }
}
