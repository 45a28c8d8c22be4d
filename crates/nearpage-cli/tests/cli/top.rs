//! `nearpage top` as a user runs it: streams, and panes in a pseudo-terminal.

use std::ffi::CStr;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
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
fn every_word_has_a_section_of_the_book() {
    let page = std::fs::read_to_string(root().join("docs/src/reference/marks.md")).unwrap();
    let sections: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    let words: Vec<&str> = nearpage_watch::WORDS.iter().map(|word| word.word).collect();
    assert_eq!(sections, words);
    // Each is said by a rule, and told in the help.
    let help = text(&["--help"]);
    for word in words {
        assert!(help.contains(word), "{word}");
    }
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

/// A terminal's two ends, which no program gets that another test starts meanwhile.
fn terminal() -> (File, File) {
    // SAFETY: flags only; the descriptor is looked at below.
    let master = unsafe { libc::posix_openpt(libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC) };
    assert!(master >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: the call gave it, and nobody else has it.
    let master = File::from(unsafe { OwnedFd::from_raw_fd(master) });
    let mut name = [0; 64];
    // SAFETY: the descriptor is that of a terminal, and there is as much room for the name as is said.
    let is_open = unsafe {
        libc::grantpt(master.as_raw_fd()) == 0
            && libc::unlockpt(master.as_raw_fd()) == 0
            && libc::ptsname_r(master.as_raw_fd(), name.as_mut_ptr(), name.len()) == 0
    };
    assert!(is_open, "{}", std::io::Error::last_os_error());
    // SAFETY: the call wrote a name that ends with a zero.
    let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_str().unwrap();
    let slave = File::options().read(true).write(true).custom_flags(libc::O_NOCTTY).open(name);
    (master, slave.unwrap())
}

fn set_size(master: &File, columns: u16, rows: u16) {
    let size = libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the descriptor is open, and the size outlives the call, which only reads it.
    assert_eq!(unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCSWINSZ, &size) }, 0);
}

impl OnTerminal {
    fn start(arguments: &[&str], columns: u16, rows: u16) -> OnTerminal {
        OnTerminal::start_command(command(arguments), columns, rows)
    }

    fn start_command(mut child: Command, columns: u16, rows: u16) -> OnTerminal {
        let (master, slave) = terminal();
        set_size(&master, columns, rows);
        let end = || Stdio::from(slave.try_clone().unwrap());
        child.env("TERM", "xterm").stdin(end()).stdout(end()).stderr(end());
        let screen = vt100::Parser::new(rows.try_into().unwrap(), columns.try_into().unwrap(), 0);
        OnTerminal { child: child.spawn().unwrap(), master, screen }
    }

    /// Another size, as of a window that is pulled at its corner.
    fn resize(&mut self, columns: u16, rows: u16) {
        set_size(&self.master, columns, rows);
        if let (Ok(rows), Ok(columns)) = (rows.try_into(), columns.try_into()) {
            self.screen.screen_mut().set_size(rows, columns);
        }
    }

    fn signal(&self, signal: i32) {
        // SAFETY: the child was not waited for yet: the id is its own.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, signal) }, 0);
    }

    /// The letter of `ps`: T is stopped.
    fn state(&self) -> char {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        stat.rsplit(") ").next().unwrap().chars().next().unwrap()
    }

    /// Whether the terminal gives lines, and not keys.
    fn is_cooked(&self) -> bool {
        // SAFETY: zeroes are a value of the type, and the call writes it; the descriptor is open.
        let mode = unsafe {
            let mut mode: libc::termios = std::mem::zeroed();
            assert_eq!(libc::tcgetattr(self.master.as_raw_fd(), &mut mode), 0);
            mode
        };
        mode.c_lflag & libc::ICANON != 0
    }

    fn press(&mut self, keys: &[u8]) {
        self.master.write_all(keys).unwrap();
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
    top.press(b"2");
    top.wait_for(&["[2 zones]", "DMA32"]);
    top.press(b"?");
    top.wait_for(&["pauses"]);
    top.press(b"q");
    assert!(top.ends().contains("\u{1b}[?1049l"));
}

/// A command with what SIGHUP does to it.
fn hung_up_by(mut command: Command, disposition: libc::sighandler_t) -> Command {
    // SAFETY: between fork and exec nothing is called but this, which is allowed there.
    unsafe {
        command.pre_exec(move || match libc::signal(libc::SIGHUP, disposition) {
            libc::SIG_ERR => Err(std::io::Error::last_os_error()),
            _ => Ok(()),
        })
    };
    command
}

/// Ctrl-C in raw mode is a key; a signal ends it too, and restores as well.
#[test]
fn a_signal_restores_the_terminal() {
    for signal in [None, Some(libc::SIGTERM), Some(libc::SIGHUP), Some(libc::SIGQUIT)] {
        // `top` would inherit that the tests ignore SIGHUP, as under `nohup`.
        let mut top = OnTerminal::start_command(hung_up_by(command(&[]), libc::SIG_DFL), 40, 10);
        top.wait_for(&["nodes"]);
        match signal {
            None => top.press(b"\x03"),
            Some(signal) => {
                // The begin of a sequence whose end never comes keeps nobody.
                top.press(b"\x1b[<0;\xff");
                top.signal(signal);
            }
        }
        assert!(top.ends().contains("\u{1b}[?1049l"), "signal {signal:?}");
    }
}

/// A window that is closed under a program that ignores SIGHUP, as one does that `nohup` or `disown` kept.
#[test]
fn a_terminal_that_is_gone_ends_it() {
    for ignores in [false, true] {
        for rest_of_a_key in [&b""[..], b"\x1b[<0;"] {
            let child = command(&["--sysroot", MACHINE, "-d", "60"]);
            let disposition = if ignores { libc::SIG_IGN } else { libc::SIG_DFL };
            let mut top = OnTerminal::start_command(hung_up_by(child, disposition), 80, 24);
            top.wait_for(&["[1 nodes]"]);
            top.press(rest_of_a_key);
            std::thread::sleep(Duration::from_millis(200));
            top.master = File::open("/dev/null").unwrap();
            let begin = Instant::now();
            let status = loop {
                if let Some(status) = top.child.try_wait().unwrap() {
                    break status;
                }
                assert!(begin.elapsed() < PATIENCE, "it goes on, ignores: {ignores}");
                std::thread::sleep(Duration::from_millis(20));
            };
            assert_eq!(status.code(), Some(1), "ignores: {ignores}, {status}");
        }
    }
}

/// Ctrl-Z as a key and SIGTSTP give the terminal back; what goes on takes it again and draws all anew.
#[test]
fn it_stops_and_goes_on() {
    for by_key in [true, false] {
        let mut child = command(&["--sysroot", MACHINE, "-d", "0.2"]);
        child.process_group(0);
        let mut top = OnTerminal::start_command(child, 80, 24);
        top.wait_for(&["[1 nodes]"]);
        match by_key {
            true => top.press(b"\x1a"),
            false => top.signal(libc::SIGTSTP),
        }
        let mut seen = String::new();
        let begin = Instant::now();
        while top.state() != 'T' {
            assert!(begin.elapsed() < PATIENCE, "it does not stop: {seen:?}");
            seen += &top.read().unwrap();
        }
        seen += &top.read().unwrap();
        assert!(seen.contains("\u{1b}[?1049l") && seen.contains("\u{1b}[?1000l"), "{seen:?}");
        assert!(top.is_cooked(), "keys are lines again");
        // Somebody writes meanwhile.
        top.screen.process(b"\x1b[2J\x1b[Hsomething else");
        top.signal(libc::SIGCONT);
        let again = top.wait_for(&["[1 nodes]", "distance"]);
        assert!(again.contains("\u{1b}[?1049h") && !top.is_cooked(), "{again:?}");
        top.press(b"2");
        top.wait_for(&["[2 zones]"]);
        top.press(b"q");
        top.ends();
    }
}

/// A folder with the files of a machine, which a test changes while it is watched.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        let folder = Folder(tempfile::tempdir().unwrap());
        folder.write("proc/sys/vm/zone_reclaim_mode", "0\n");
        folder.node(0, 50_000, 1000);
        folder.zones(&[50_000]);
        folder
    }

    fn path(&self) -> &str {
        self.0.path().to_str().unwrap()
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.0.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn node(&self, node: usize, free: u64, hits: u64) {
        let folder = format!("sys/devices/system/node/node{node}");
        let kib = free * 4;
        self.write(
            &format!("{folder}/meminfo"),
            &format!("Node {node} MemTotal: 400000 kB\nNode {node} MemFree: {kib} kB\n"),
        );
        self.write(&format!("{folder}/numastat"), &format!("numa_hit {hits}\nnuma_miss 0\n"));
        self.write(&format!("{folder}/distance"), "10 20\n");
        self.write(&format!("{folder}/cpulist"), "0\n");
    }

    fn zones(&self, free: &[u64]) {
        let (mut zoneinfo, mut buddyinfo) = (String::new(), String::new());
        for (node, free) in free.iter().enumerate() {
            zoneinfo += &format!(
                "Node {node}, zone   Normal\n  pages free     {free}\n        boost    0\n        min      1000\n        \
                 low      1250\n        high     1500\n        present  100000\n        managed  100000\n        \
                 protection: (0, 0, 0)\n  pagesets\n    cpu: 0\n              count: 5\n              high:  9\n"
            );
            buddyinfo += &format!(
                "Node {node}, zone   Normal {} 0 0 0 {} 0 0 0 0 0 0\n",
                free % 16,
                free / 16
            );
        }
        self.write("proc/zoneinfo", &zoneinfo);
        self.write("proc/buddyinfo", &buddyinfo);
    }
}

#[test]
fn what_is_recorded_is_played() {
    let folder = Folder::new();
    let tape = folder.0.path().join("top.tape");
    let tape = tape.to_str().unwrap();
    let machine = &["--sysroot", folder.path(), "-d", "0.1"][..];
    text(&[machine, &["-n", "3", "--record", tape]].concat());
    folder.zones(&[900]);
    // A recorder alone prints nothing; it goes on with the file.
    let silent = command(&[machine, &["--record", tape]].concat()).output().unwrap();
    assert!(silent.status.success() && silent.stdout.is_empty(), "{silent:?}");
    let once = text(&["--once", "--play", tape]);
    assert!(once.contains("refusing") && once.contains(folder.path()), "{once}");
    assert_eq!(
        once,
        text(&["--play", tape]),
        "elsewhere than on a terminal its last sample is printed"
    );
    let csv = text(&["--csv", "--play", tape]);
    let marks: Vec<&str> = csv.lines().map(|line| line.rsplit(',').next().unwrap()).collect();
    assert_eq!(marks, ["marks", "", "", "", "refusing"]);
    let json = text(&["--json", "--play", tape, "-n", "2"]);
    assert_eq!(json.lines().count(), 2);

    let mut top = OnTerminal::start(&["--play", tape], 80, 24);
    top.press(b" {");
    top.wait_for(&["[1 nodes]", "sample 1 of 4", "paused"]);
    top.press(b".2");
    top.wait_for(&["[2 zones]", "sample 2 of 4", "nothing is wrong"]);
    top.press(b"m");
    top.wait_for(&["sample 4 of 4, the end", "! refusing node 0 Normal"]);
    top.press(b"\x1b[D");
    top.wait_for(&["sample 1 of 4", "nothing is wrong"]);
    top.press(b"\x1b[C+");
    top.wait_for(&["sample 4 of 4", "speed 2"]);
    top.press(b"q");
    top.ends();
}

/// A guest of two nodes, recorded while a program and files filled the small one (`nearpage-top/tests/guest`).
#[test]
fn a_recorded_guest_tells_what_went_wrong() {
    let tape = "docs/src/examples/two-nodes.tape";
    let csv = text(&["--csv", "--play", tape]);
    for word in ["refusing", "kept-away", "spilled"] {
        assert!(
            csv.lines().any(|line| line.contains(",1,Normal,") && line.contains(word)),
            "{word}"
        );
    }
    assert!(!csv.lines().any(|line| line.contains(",0,Normal,") && line.contains("refusing")));
    let mut top = OnTerminal::start(&["--play", tape], 80, 24);
    top.press(b"5 {");
    top.wait_for(&["[5 processes]", "sample 1 of", "paused", "N1 M", "init"]);
    top.press(b"m");
    top.wait_for(&["slowly"]);
    top.press(b"2");
    top.wait_for(&["[2 zones]", "nothing", "! kept-away"]);
    top.press(b"6");
    top.wait_for(&["! refusing node 1 Normal", "kept-away began: node 1 Normal: node 0 has"]);
    top.press(b"q");
    top.ends();
}

#[test]
fn what_is_no_recording_is_refused() {
    let folder = Folder::new();
    let file = folder.0.path().join("file");
    let path = file.to_str().unwrap();
    let refused = |arguments: &[&str]| {
        let output = command(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    std::fs::write(&file, "Node 0, zone Normal").unwrap();
    assert!(refused(&["--once", "--play", path]).contains("no recording of nearpage top"));
    assert!(refused(&["-n", "1", "--record", path]).contains("no recording of nearpage top"));
    assert_eq!(std::fs::read(&file).unwrap(), b"Node 0, zone Normal", "it is left as it is");
    std::fs::remove_file(&file).unwrap();
    text(&["-n", "1", "--record", path, "--sysroot", folder.path()]);
    let mut content = std::fs::read(&file).unwrap();
    assert!(
        refused(&["--record", path, "--record-size", "8M", "-n", "1"]).contains("has room for")
    );
    std::fs::write(&file, &content[..600]).unwrap();
    assert!(refused(&["--once", "--play", path]).contains("ends before its first sample"));
    content[16] = 7;
    std::fs::write(&file, &content).unwrap();
    assert!(refused(&["--once", "--play", path]).contains("version 7, expected 1"));
    refused(&["--play", path, "--record", path]);
    refused(&["--record", path, "--record-size", "3"]);
    refused(&["--capture", "before", "--once"]);
    refused(&["--process", "/nowhere", "--once"]);
    assert!(refused(&["--process", "", "--once"]).contains("expected its id, or the path"));
    assert!(
        refused(&["--process", "999999999", "--once"])
            .contains("process 999999999: there is no such process")
    );
    let copy = "crates/nearpage-cli/tests/data/linux-6.12-memoryless";
    assert!(refused(&[copy, "--capture", "x", "--once"]).contains("has no capture x"));
    assert!(refused(&["--once", "docs/src"]).contains("no copy of a machine"));
}

/// Nodes that appear and go, counters that go back, files that vanish or are cut in the middle.
#[test]
fn a_tree_that_changes_is_followed() {
    let folder = Folder::new();
    let mut top = OnTerminal::start(&[folder.path(), "-d", "0.1"], 100, 24);
    top.wait_for(&["[1 nodes]", "390"]);
    folder.node(1, 20_000, 7);
    folder.zones(&[50_000, 900]);
    top.wait_for(&[" all", "! refusing node 1 Normal"]);
    folder.node(0, 50_000, 3);
    std::fs::remove_dir_all(folder.0.path().join("sys/devices/system/node/node1")).unwrap();
    folder.zones(&[50_000]);
    top.wait_for(&["nothing is wrong"]);
    folder.write("proc/zoneinfo", "Node 0, zone   Normal\n  pages free     4");
    folder.write("proc/buddyinfo", "Node 0, zo");
    top.press(b"2");
    top.wait_for(&["[2 zones]", "   0 Normal          4         -"]);
    std::fs::remove_dir_all(folder.0.path().join("proc")).unwrap();
    top.wait_for(&["does not tell", "not known what is wrong"]);
    folder.zones(&[50_000]);
    top.wait_for(&["   0 Normal      50000"]);
    top.press(b"q");
    top.ends();
}

#[test]
fn a_terminal_that_shrinks_to_nothing_and_grows_again() {
    let mut top = OnTerminal::start(&["--sysroot", MACHINE, "-d", "0.1"], 200, 60);
    top.wait_for(&["[1 nodes]", "distances"]);
    for (columns, rows) in [(80, 24), (20, 3), (1, 1), (0, 0), (1000, 2), (2, 300)] {
        top.resize(columns, rows);
        top.press(b"2?");
        let _ = top.read();
        top.press(b"?\r\r5");
        let _ = top.read();
    }
    top.resize(80, 24);
    top.press(b"\x1b");
    top.press(b"2");
    top.wait_for(&["[2 zones]", "DMA32", "nothing is wrong"]);
    top.press(b"q");
    top.ends();
}

/// `top` sleeps between two samples. The test counts its system calls without a pause, not its time: a loaded machine makes
/// time longer, and calls fewer.
#[test]
fn waiting_for_keys_takes_no_time() {
    let mut top = OnTerminal::start(&["--sysroot", MACHINE, "-d", "60"], 80, 24);
    top.wait_for(&["[1 nodes]"]);
    match calls_without_a_pause(&top.child, Duration::from_secs(2)) {
        // `top` looks ten times a second, with 10 calls. A program that spins for the last millisecond of each wait makes 180,
        // even when it is traced.
        Ok(calls) => assert!((1..50).contains(&calls), "{calls} system calls without a pause"),
        Err(error) => eprintln!("SKIPPED: how often it looks, as it cannot be traced: {error}"),
    }
    // Keys that come at once are all taken.
    top.press(b"2345");
    top.wait_for(&["[5 processes]"]);
    top.press(b"q");
    top.ends();
}

/// The most system calls of a process between two pauses, within a time.
fn calls_without_a_pause(child: &Child, time: Duration) -> nix::Result<u64> {
    use nix::sys::ptrace::{self, Options};
    use nix::sys::wait::{WaitStatus, waitpid};
    const PAUSE: Duration = Duration::from_millis(20);
    let pid = nix::unistd::Pid::from_raw(child.id() as i32);
    ptrace::seize(pid, Options::PTRACE_O_TRACESYSGOOD)?;
    ptrace::interrupt(pid)?;
    let begin = Instant::now();
    let (mut stops, mut most, mut last) = (0, 0, begin);
    loop {
        let signal = match waitpid(pid, None)? {
            WaitStatus::PtraceSyscall(_) => {
                stops = if last.elapsed() > PAUSE { 1 } else { stops + 1 };
                (most, last) = (most.max(stops), Instant::now());
                None
            }
            WaitStatus::PtraceEvent(..) => None,
            WaitStatus::Stopped(_, signal) => Some(signal),
            other => panic!("it ended: {other:?}"),
        };
        if begin.elapsed() >= time {
            ptrace::detach(pid, signal)?;
            // Each call stops where it begins, and where it ends.
            return Ok(most / 2);
        }
        ptrace::syscall(pid, signal)?;
    }
}

#[test]
fn the_mouse_opens_panes() {
    let mut top = OnTerminal::start(&["--sysroot", MACHINE, "-d", "0.2"], 80, 24);
    let first = top.wait_for(&["[1 nodes]"]);
    assert!(first.contains("\u{1b}[?1000h"), "the mouse is asked for: {first:?}");
    // Left button at column 13 of the first line, as xterm tells it; then on a row, twice.
    top.press(b"\x1b[<0;13;1M");
    top.wait_for(&["[2 zones]"]);
    top.press(b"\x1b[<0;3;5M\x1b[<0;3;5M");
    top.wait_for(&["zone DMA32 of node 0", "GFP_HIGHUSER_MOVABLE"]);
    top.press(b"q");
    let rest = top.ends();
    assert!(rest.contains("\u{1b}[?1000l"), "and given back: {rest:?}");
}

/// Without places on the screen, and without colours, there are texts.
#[test]
fn a_terminal_without_a_cursor_gets_texts() {
    let mut child = command(&["--sysroot", MACHINE]);
    child.env("LC_ALL", "C").env("NO_COLOR", "1");
    let mut top = OnTerminal::start_command(child, 80, 24);
    let panes = top.wait_for(&["[1 nodes]"]);
    assert!(panes.is_ascii(), "{panes:?}");
    top.press(b"q");
    top.ends();
    let mut child = command(&["--sysroot", MACHINE]);
    child.env("TERM", "dumb").stdin(Stdio::null());
    let output = child.output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("nothing is wrong"), "{output:?}");
}

/// Set where the panes are to panic.
const PANICS: &str = "NEARPAGE_TEST_PANICS";

/// What panics in the panes: [`a_panic_restores_the_terminal`] runs it on a terminal of its own.
#[test]
fn panes_of_a_tree_that_panics() {
    if std::env::var_os(PANICS).is_none() {
        return;
    }
    struct Panics;
    impl nearpage_machine::FileTree for Panics {
        fn read(&self, _: &str) -> std::io::Result<Option<Vec<u8>>> {
            static READS: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
            let reads = READS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            assert!(reads < 20, "planted");
            Ok(None)
        }
        fn names(&self, _: &str) -> std::io::Result<Vec<String>> {
            Ok(Vec::new())
        }
        fn display(&self, path: &str) -> String {
            path.into()
        }
    }
    let feed = nearpage_top::Feed::live(nearpage_watch::Sampler::new(Box::new(Panics)));
    let signals = nearpage_top::Signals::default();
    let _ = nearpage_top::run("x", feed, Duration::from_millis(200), &signals);
}

#[test]
fn a_panic_restores_the_terminal() {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "top::panes_of_a_tree_that_panics", "--nocapture"]).env(PANICS, "1");
    let mut top = OnTerminal::start_command(child, 80, 24);
    let begin = Instant::now();
    let mut seen = String::new();
    while !(seen.contains("planted") && seen.contains("\u{1b}[?1049l")) {
        assert!(begin.elapsed() < PATIENCE, "{seen:?}");
        seen += &top.read().unwrap_or_else(|| panic!("it ended: {seen:?}"));
    }
    let place = |what: &str| seen.rfind(what).unwrap_or_else(|| panic!("no {what:?}: {seen:?}"));
    // The message comes on the restored screen, without the mouse.
    assert!(place("\u{1b}[?1049l") < place("planted") && place("\u{1b}[?1000l") < place("planted"));
}

#[test]
fn a_process_that_serves_its_figures_has_a_pane() {
    let folder = tempfile::tempdir().unwrap();
    let memory = nearpage_linux::Memory::builder().bytes_per_node(16 << 20).build().unwrap();
    let memory = std::sync::Arc::new(memory);
    let server = memory.serve_stats(folder.path().join("socket")).unwrap();
    let socket = server.path().to_str().unwrap();
    assert!(text(&["--once", "--process", socket]).contains("Normal"));
    let mut top = OnTerminal::start(&["--process", socket, "-d", "0.2"], 100, 30);
    top.wait_for(&["7 program", "[1 nodes]"]);
    top.press(b"7");
    top.wait_for(&["[7 program]", "storage", "in use: ", "limits: hard none"]);
    // It ends: that is told, and is no error.
    drop(server);
    top.wait_for(&["the process has ended"]);
    top.press(b"q");
    top.ends();
}

/// What can be shown of nothing, or kept nowhere, is refused in words that say what would do.
#[test]
fn wrong_numbers_and_places_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("x.json");
    std::fs::write(&json, r#"{"a":1}"#).unwrap();
    let json = json.to_str().unwrap();
    for (arguments, said) in [
        (&["-n", "0"][..], "0 is not in 1.."),
        (&["-d", "-1"], "expected seconds from 0.1 to 86400"),
        (&["-n", "-1"], "invalid value '-1'"),
        (&["-n", "1", "--record", "/dev/full"], "/dev/full: no regular file"),
        (&["--play", "/dev/full"], "/dev/full: no regular file"),
        (&["--once", json], "no captures, expected captures.NAME"),
    ] {
        let mut command = assert_cmd::Command::cargo_bin("nearpage").unwrap();
        let output = command.arg("top").args(arguments).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains(said), "{arguments:?}: {error}");
    }
}
