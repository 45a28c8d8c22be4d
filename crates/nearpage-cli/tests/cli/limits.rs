//! Each row of the table of limits (*What is trusted*, in the book) is reached by an input, and says what the table says, in the
//! memory and the time that the page promises.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;

use super::tidy::root;
use super::unpacked_bundle;

/// No input may take more. A description of 256 MiB, read and parsed, takes half a gigabyte.
const RESIDENT_MAX_KIB: u64 = 600 << 10;
/// The page promises a second a 100 MB where nothing is told meanwhile. Tests are not optimised, and machines are shared.
const TIME_MAX: Duration = Duration::from_secs(60);
/// What is caught in a loop is ended.
const CPU_SECONDS_MAX: u64 = 120;

/// A place for inputs.
pub(super) struct Inputs(tempfile::TempDir);

impl Inputs {
    pub(super) fn new() -> Inputs {
        Inputs(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(super) fn write(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    /// A file of zeroes that takes no disk.
    fn sparse(&self, name: &str, bytes: u64) -> PathBuf {
        let path = self.write(name, b"");
        File::options().write(true).open(&path).unwrap().set_len(bytes).unwrap();
        path
    }

    /// A tar of members with a kind, a name, and so many blanks, packed by gzip.
    fn archive(&self, name: &str, members: &[(u8, &str, u64)]) -> PathBuf {
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        for (kind, path, bytes) in members {
            let mut header = tar::Header::new_gnu();
            header.set_path(path).unwrap();
            header.set_entry_type(tar::EntryType::new(*kind));
            header.set_size(*bytes);
            header.set_mode(0o644);
            header.set_cksum();
            packed.write_all(header.as_bytes()).unwrap();
            io::copy(&mut io::repeat(b' ').take(bytes.next_multiple_of(512)), &mut packed).unwrap();
        }
        packed.write_all(&[0; 1024]).unwrap();
        self.write(name, &packed.finish().unwrap())
    }

    /// A folder of a machine that is complete but for what a test puts there.
    fn machine(&self, name: &str) -> PathBuf {
        self.write(&format!("{name}/sys/devices/system/node/online"), b"0\n");
        self.write(&format!("{name}/sys/devices/system/node/node0/cpulist"), b"0\n");
        self.write(&format!("{name}/sys/devices/system/node/node0/distance"), b"10\n");
        self.write(&format!("{name}/sys/devices/system/cpu/online"), b"0\n");
        self.write(&format!("{name}/proc/meminfo"), b"MemTotal: 400000 kB\n");
        self.path(name)
    }
}

/// A zstd of a tar whose one member is as long as it is told, and packed to a thirty-thousandth: blocks of 128 KiB.
pub(super) fn zstd_bomb(window_bits: u8, blocks: usize) -> Vec<u8> {
    let mut header = tar::Header::new_gnu();
    header.set_path("a/other").unwrap();
    header.set_size(7 << 30);
    header.set_cksum();
    zstd_that_begins(header.as_bytes(), window_bits, blocks)
}

fn zstd_that_begins(begin: &[u8], window_bits: u8, blocks: usize) -> Vec<u8> {
    let mut bomb = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, (window_bits - 10) << 3];
    let raw_block = (begin.len() as u32) << 3;
    bomb.extend(&raw_block.to_le_bytes()[..3]);
    bomb.extend(begin);
    // One byte, repeated 128 KiB.
    (0..blocks).for_each(|_| bomb.extend([0x02, 0x00, 0x10, b'x']));
    bomb
}

/// A `perf.data` in which each of 60 000 descriptions names all of the file.
fn perf_of_ids() -> Vec<u8> {
    const ATTRS: u64 = 80;
    let mut file = b"PERFILE2".to_vec();
    let numbers = [104, ATTRS, 104, ATTRS * 60_000, 104, 8, 0, 0, 2, 0, 0, 0];
    file.extend(numbers.iter().flat_map(|number: &u64| number.to_le_bytes()));
    let whole = ATTRS as usize * 60_000 + 104;
    while file.len() < whole {
        file.extend(0_u64.to_le_bytes());
        file.extend((whole as u64 & !7).to_le_bytes());
    }
    file.truncate(whole);
    file
}

/// The recorded bundle as a folder, with a trace whose last second is as many seconds later.
fn bundle_with_a_gap(inputs: &Inputs, name: &str, seconds: f64) -> PathBuf {
    let folder = unpacked_bundle(&inputs.path(name));
    let text = fs::read_to_string(folder.join("trace.txt")).unwrap();
    let begin = text.find("nearpage: cmd end").unwrap();
    let at = text[..begin].rfind('\n').unwrap() + 1;
    let (before, after) = text.split_at(at);
    let later = |line: &str| {
        let Some((head, rest)) = line.split_once(": ") else { return format!("{line}\n") };
        let (head, time) = head.rsplit_once(' ').unwrap_or(("", head));
        match time.parse::<f64>() {
            Ok(time) => format!("{head} {:.6}: {rest}\n", time + seconds),
            Err(_) => format!("{line}\n"),
        }
    };
    fs::write(
        folder.join("trace.txt"),
        before.to_owned() + &after.lines().map(later).collect::<String>(),
    )
    .unwrap();
    folder
}

pub(super) struct Outcome {
    pub(super) code: Option<i32>,
    pub(super) said: String,
    pub(super) resident_kib: u64,
    pub(super) time: Duration,
    pub(super) cpu_time: Duration,
}

/// Runs the program, and tells what it took.
#[expect(clippy::zombie_processes, reason = "wait4 waits, and tells what was taken, too")]
pub(super) fn run(arguments: &[&str]) -> Outcome {
    let began = Instant::now();
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("nearpage"));
    let bounded = || {
        let most = libc::rlimit { rlim_cur: CPU_SECONDS_MAX, rlim_max: CPU_SECONDS_MAX };
        // SAFETY: a call that may be made after a fork; the limit is there.
        unsafe { libc::setrlimit(libc::RLIMIT_CPU, &raw const most) };
        Ok(())
    };
    // SAFETY: the closure makes one system call.
    unsafe { command.pre_exec(bounded) };
    let mut child = command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut err = child.stderr.take().unwrap();
    let errors = std::thread::spawn(move || {
        let mut said = Vec::new();
        err.read_to_end(&mut said).map(|_| said).unwrap()
    });
    // What the kernel tells at the end begins with what this process had when it started the other one.
    let status = format!("/proc/{}/status", child.id());
    let watched = std::thread::spawn(move || {
        let mut most = 0;
        loop {
            let text = fs::read_to_string(&status).unwrap_or_default();
            let peak = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
            // A zombie has none.
            let Some(peak) = peak else { return most };
            most = peak.split_whitespace().next().and_then(|kib| kib.parse().ok()).unwrap_or(most);
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    let mut said = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut said).unwrap();
    said.extend(errors.join().unwrap());
    let resident_kib = watched.join().unwrap();
    // The child is no more than a zombie, which keeps what it took.
    let (mut status, pid) = (0, child.id() as libc::pid_t);
    // SAFETY: numbers; zeroes are a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both places for answers are there; nobody else waits for this child.
    let waited = unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut usage) };
    assert_eq!(waited, pid);
    let seconds = |of: libc::timeval| {
        Duration::from_secs(of.tv_sec as u64) + Duration::from_micros(of.tv_usec as u64)
    };
    Outcome {
        code: libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status)),
        said: String::from_utf8(said).unwrap(),
        resident_kib,
        time: began.elapsed(),
        cpu_time: seconds(usage.ru_utime) + seconds(usage.ru_stime),
    }
}

/// The messages of the table, in its order.
fn table() -> Vec<String> {
    let page = fs::read_to_string(root().join("docs/src/trust/what-is-trusted.md")).unwrap();
    let rows =
        page.lines().filter(|line| line.starts_with("| ") && line.matches(" | ").count() == 3);
    let said = rows.filter_map(|row| row.trim_end_matches(" |").rsplit(" | ").next());
    said.filter_map(|cell| Some(cell.strip_prefix('`')?.strip_suffix('`')?.to_owned())).collect()
}

/// Turns that are left out change no more than when the turns behind the gap come: the length of a gap changes nothing, and a gap
/// whose turns are all done differs in a pageset or two.
#[test]
fn what_a_gap_leaves_out_changes_little() {
    let inputs = Inputs::new();
    let result = |name: &str, seconds: f64| {
        let bundle = bundle_with_a_gap(&inputs, name, seconds);
        let Outcome { code, said, .. } = run(&["replay", "--json", bundle.to_str().unwrap()]);
        assert_eq!(code, Some(0), "{said}");
        let result: serde_json::Value = serde_json::from_str(&said).unwrap();
        let unticked = result["trace"]["unticked_seconds"].as_f64().unwrap();
        (result["fidelity"]["rows"].clone(), unticked)
    };
    let of = |rows: &serde_json::Value, quantity: &str| {
        let row = |row: &&serde_json::Value| row["quantity"] == quantity && row["where"] == "all";
        rows.as_array().unwrap().iter().find(row).unwrap()["predicted"].as_f64().unwrap()
    };
    let (whole, unticked) = result("whole", 1000.0);
    assert_eq!(unticked, 0.0);
    let (short, unticked) = result("short", 2000.0);
    assert!((unticked - 1488.0).abs() < 2.0, "{unticked}");
    let (long, unticked) = result("long", 1e9);
    assert!((unticked - (1e9 - 512.0)).abs() < 2.0, "{unticked}");
    assert_eq!(short, long);
    for (quantity, error_max) in [("refills", 0.0), ("refill_pages", 0.0), ("drain_pages", 0.02)] {
        let (whole, part) = (of(&whole, quantity), of(&short, quantity));
        assert!((whole - part).abs() <= whole * error_max, "{quantity}: {whole} and {part}");
    }
}

#[test]
fn each_limit_of_the_table_is_reached_and_told() {
    let inputs = Inputs::new();
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let linked = inputs.machine("linked");
    symlink("/etc/passwd", linked.join("proc/zoneinfo")).unwrap();
    let large = inputs.machine("large");
    inputs.sparse("large/proc/zoneinfo", (64 << 20) + 1);
    let kept = [(b'0', "a/proc/zoneinfo", 40 << 20), (b'0', "a/proc/meminfo", 40 << 20)];
    let line = [b"x".repeat(2 << 20), b"\n".to_vec()].concat();
    let gap = text(&bundle_with_a_gap(&inputs, "gap", 4_294_967_296.0));
    let cases: [(&str, i32, Vec<String>); 10] = [
        (
            "it unpacks to more than 64 MiB and 1000 times its length",
            2,
            vec!["verify".into(), text(&inputs.write("bomb.tar.zst", &zstd_bomb(21, 50_000)))],
        ),
        (
            "more than 256 KiB of names and headers before a file",
            2,
            vec!["verify".into(), text(&inputs.archive("long.tar.gz", &[(b'L', "a", 1 << 30)]))],
        ),
        (
            "more than 24 MiB and 16 times its length are to be kept in memory",
            2,
            vec!["topo".into(), "--sysroot".into(), text(&inputs.archive("kept.tar.gz", &kept))],
        ),
        (
            "longer than 256 MiB",
            2,
            vec![
                "topo".into(),
                "--topology".into(),
                text(&inputs.sparse("machine", (256 << 20) + 1)),
            ],
        ),
        ("longer than 64 MiB", 2, vec!["verify".into(), text(&large)]),
        ("a link that leads out of the folder", 2, vec!["verify".into(), text(&linked)]),
        (
            "more ids than the file can have",
            2,
            vec![
                "replay".into(),
                "--trace".into(),
                text(&inputs.write("perf.data", &perf_of_ids())),
            ],
        ),
        (
            "expected lines of less than 1 MiB",
            2,
            vec!["replay".into(), "--trace".into(), text(&inputs.write("line.txt", &line))],
        ),
        (
            "without an event: the model's ticks in it are left out but for the last 512 s",
            0,
            vec!["replay".into(), gap],
        ),
        (
            "longer than 1 MiB",
            2,
            vec!["lab".into(), text(&inputs.sparse("scenario.toml", (1 << 20) + 1))],
        ),
    ];
    let mut failures = Vec::new();
    for (message, code, arguments) in &cases {
        let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let Outcome { code: ended, said, resident_kib, time, .. } = run(&words);
        let tail: String =
            said.chars().rev().take(600).collect::<Vec<_>>().into_iter().rev().collect();
        eprintln!("{message}: {resident_kib} KiB, {time:?}");
        if ended != Some(*code) || !said.contains(message) {
            failures
                .push(format!("{arguments:?}: exit code {ended:?}, expected {message:?}: {tail}"));
        }
        if resident_kib > RESIDENT_MAX_KIB || time > TIME_MAX {
            failures.push(format!("{arguments:?}: {resident_kib} KiB resident, {time:?}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    let rows = table();
    let told: Vec<&str> = cases.iter().map(|(message, ..)| *message).collect();
    assert_eq!(rows, told, "the table of the book and the cases of this test are not the same");
}

/// What begins like a binary trace is unpacked to a file before it is judged: to no more than another stream.
#[test]
fn what_begins_like_a_binary_trace_fills_no_disk() {
    let inputs = Inputs::new();
    for begin in [&b"PERFILE2"[..], b"\x17\x08\x44tracing6\0"] {
        let bomb = inputs.write("trace.zst", &zstd_that_begins(begin, 21, 20_000));
        let Outcome { code, said, .. } = run(&["replay", "--trace", bomb.to_str().unwrap()]);
        let is_told = said.contains("it unpacks to more than 64 MiB and 1000 times its length");
        assert!(code == Some(2) && is_told, "{begin:?}: {code:?}: {said}");
    }
}

/// Each command that reads says that `--limit` raises a limit, and so it does.
#[test]
fn an_option_raises_limits() {
    let inputs = Inputs::new();
    let bomb = inputs.write("bomb.tar.zst", &zstd_bomb(21, 1200));
    let bomb = bomb.to_str().unwrap();
    let twin = inputs.path("twin");
    let commands: [&[&str]; 15] = [
        &["topo", "--sysroot", bomb],
        &["topo", "--bundle", bomb],
        &["top", "--once", bomb],
        &["doctor", "--sysroot", bomb],
        &["explain", bomb],
        &["export", "--textfile", "-", "--sysroot", bomb],
        &["lab", "fill", "--machine", bomb],
        &["verify", bomb],
        &["replay", bomb],
        &["replay", "sweep", "--over", "pcp.batch_scale_max=0,1", bomb],
        &["replay", "rules", bomb],
        &["whatif", "--change", "pcp.batch_scale_max=0", bomb],
        &["trace", "export", "--chrome", "-", bomb],
        &["trace", "twin", "--output", twin.to_str().unwrap(), bomb],
        &["trace", "summary", "--blame", bomb],
    ];
    for command in commands {
        let said = |more: &[&str]| run(&[command, more].concat()).said;
        let unraised = said(&[]);
        let expected = "it unpacks to more than 64 MiB and 1000 times its length, the most that is unpacked; --limit SIZE";
        assert!(unraised.contains(expected), "{command:?}: {unraised}");
        let raised = said(&["--limit", "100M"]);
        assert!(raised.contains("it unpacks to more than 100 MiB"), "{command:?}: {raised}");
    }
    let wrong = run(&["verify", "--limit", "7", bomb]).said;
    assert!(wrong.contains("expected a size such as 0, 512M"), "{wrong}");
}

/// Whoever runs the tests may ignore Ctrl-C; the command does not.
pub(super) fn as_ever(command: &mut Command) {
    let as_ever = || {
        // SAFETY: a call that may be made after a fork.
        unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) };
        Ok(())
    };
    // SAFETY: the closure makes one system call.
    unsafe { command.pre_exec(as_ever) };
}

/// Ctrl-C ends each command that reads a stranger's input, while it waits for more and while there is always more.
#[test]
fn ctrl_c_ends_whoever_reads() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (timeline, twin) = (path("a.json"), path("twin"));
    let whatif = ["whatif", "-", "--machine", "--numa 1G,cpus=0", "--rules", "nearpage"];
    let commands: [&[&str]; 15] = [
        &["doctor", "--sysroot", "-"],
        &["explain", "-"],
        &["lab", "-"],
        &["replay", "-"],
        &["replay", "--bound", "-"],
        &["replay", "--trace", "-"],
        &["replay", "rules", "-"],
        &["top", "--once", "-"],
        &["topo", "--bundle", "-"],
        &["topo", "--topology", "-"],
        &["trace", "export", "-", "--chrome", &timeline],
        &["trace", "summary", "--blame", "-"],
        &["trace", "twin", "-", "--output", &twin],
        &["verify", "-"],
        &whatif,
    ];
    let line =
        " sh-7   [001] .....  1.000001: tracing_mark_write: nearpage: before begin\n".repeat(1000);
    for arguments in commands {
        for is_endless in [false, true] {
            let mut command = Command::new(assert_cmd::cargo::cargo_bin!("nearpage"));
            command.args(arguments).stdin(Stdio::piped());
            command.stdout(Stdio::null()).stderr(Stdio::null());
            as_ever(&mut command);
            let mut child = command.spawn().unwrap();
            let mut input = child.stdin.take().unwrap();
            let line = line.clone();
            // What is never written keeps the pipe open; what ends earlier, refuses.
            let writer = std::thread::spawn(move || {
                let mut more = || is_endless && input.write_all(line.as_bytes()).is_ok();
                while more() {}
                input
            });
            std::thread::sleep(Duration::from_millis(300));
            // SAFETY: sends a signal to a child that nobody has waited for.
            unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGINT) };
            let asked = Instant::now();
            while child.try_wait().unwrap().is_none() {
                if asked.elapsed() > Duration::from_secs(20) {
                    child.kill().unwrap();
                    panic!("{arguments:?}, endless: {is_endless}: deaf to Ctrl-C");
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            drop(writer.join());
        }
    }
}
