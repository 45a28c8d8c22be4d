//! What strangers send commands no terminal and reads no file of this machine, and nobody goes around the doors.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use assert_cmd::Command;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

use super::tidy::{complain, files, root};
use super::unpacked_bundle;

/// What would command a terminal, as C0, as C1 and by the direction of text, and what would hide, with a word to find it by.
const HOSTILE: &str = "hostile\u{1b}[31mX\u{1b}c\u{9b}2J\u{202e}\u{7f}\u{2028}\u{2029}\u{ad}\u{200b}\u{feff}\u{e0041}\u{fe0e}";

/// The folder of a machine whose every text is hostile that may have any.
fn hostile_root(folder: &Path) {
    let write = |path: &str, text: &str| {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("sys/devices/system/node/online", "0\n");
    write("sys/devices/system/node/node0/cpulist", "0\n");
    write("sys/devices/system/node/node0/distance", "10\n");
    write("sys/devices/system/cpu/online", "0\n");
    write("proc/meminfo", "MemTotal: 400000 kB\n");
    write("proc/sys/kernel/osrelease", &format!("6.1.0-{HOSTILE}\n"));
    write("proc/version", &format!("Linux version 6.1.0-{HOSTILE} ({HOSTILE})\n"));
    let zone = "pages free 700\n min 10\n low 20\n high 30\n spanned 90000\n present 90000\n managed 90000\n";
    write("proc/zoneinfo", &format!("Node 0, zone   Normal\n {zone} start_pfn: 1\n"));
}

fn run(arguments: &[&str]) -> (String, String) {
    let mut command = Command::cargo_bin("nearpage").unwrap();
    let output = command.args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("outputs are text");
    (text(output.stdout), text(output.stderr))
}

/// The same of a command line that must read a file, or of a folder any: one that only complains of its usage shows nothing.
fn run_on(input: &Path, arguments: &[&str]) -> (String, String) {
    let watch = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
    watch_reads(&watch, input);
    let (out, err) = run(arguments);
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let is_read = inotify::Reader::new(&watch, &mut buffer).next().is_ok();
    assert!(is_read && !err.contains("try '--help'"), "{arguments:?} reads nothing: {err}");
    (out, err)
}

fn watch_reads(watch: &OwnedFd, path: &Path) {
    match fs::read_dir(path) {
        Ok(entries) => entries.for_each(|entry| watch_reads(watch, &entry.unwrap().path())),
        Err(_) => _ = inotify::add_watch(watch, path, WatchFlags::ACCESS).unwrap(),
    }
}

#[test]
fn a_command_that_reads_nothing_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("s.toml");
    fs::write(&file, "name = 1\n").unwrap();
    let path = file.to_str().unwrap();
    run_on(&file, &["lab", path]);
    run_on(folder.path(), &["lab", path]);
    for arguments in [&["lab", "run", path][..], &["lab", "--nosuch", path], &["--version"]] {
        let ran = std::panic::catch_unwind(|| run_on(&file, arguments));
        assert!(ran.is_err(), "{arguments:?}");
    }
}

fn is_raw(text: &str) -> bool {
    text.contains(nearpage_machine::commands_terminal)
}

#[test]
fn hostile_texts_are_escaped_in_every_output() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("machine");
    hostile_root(&path);
    let path = path.to_str().unwrap();
    let scenario = folder.path().join("s.toml");
    fs::write(&scenario, format!("name = {HOSTILE:?}\n[{}]\n", "hostile\u{9b}")).unwrap();
    let scenario = scenario.to_str().unwrap();
    let log = folder.path().join("log");
    fs::write(
        &log,
        format!("[ 1.0] {HOSTILE}: page allocation failure: order:4, mode:0x40cc0(GFP_KERNEL)\n"),
    )
    .unwrap();
    let log = log.to_str().unwrap();
    let named = folder.path().join(HOSTILE);
    fs::write(&named, HOSTILE).unwrap();
    let named = named.to_str().unwrap();
    let metrics = folder.path().join("m.prom");
    let metrics = metrics.to_str().unwrap();
    let page = folder.path().join("page.html");
    let page = page.to_str().unwrap();
    let mut seen = 0;
    for (input, arguments) in [
        (path, &["topo", "--sysroot", path][..]),
        (path, &["topo", "--sysroot", path, "--json"]),
        (path, &["top", "--sysroot", path, "--once"]),
        (path, &["top", "--sysroot", path, "--json", "--count", "1"]),
        (path, &["top", "--sysroot", path, "--csv", "--count", "1"]),
        (path, &["doctor", "--sysroot", path]),
        (path, &["doctor", "--sysroot", path, "--json"]),
        (path, &["verify", path]),
        (path, &["verify", path, "--json"]),
        (path, &["export", "--sysroot", path, "--textfile", "-"]),
        (path, &["export", "--sysroot", path, "--textfile", metrics]),
        (scenario, &["lab", scenario]),
        (scenario, &["lab", scenario, "--json"]),
        (log, &["explain", log]),
        (log, &["explain", log, "--json"]),
        (log, &["explain", log, "--report", page]),
        (named, &["topo", "--topology", named]),
        (named, &["replay", named]),
        (named, &["verify", named]),
    ] {
        let (out, err) = run_on(Path::new(input), arguments);
        assert!(!is_raw(&out), "{arguments:?}: {out:?}");
        assert!(!is_raw(&err), "{arguments:?}: {err:?}");
        seen += usize::from(out.contains("hostile") || err.contains("hostile"));
    }
    for file in [metrics, page] {
        assert!(!is_raw(&fs::read_to_string(file).unwrap()), "{file}");
    }
    // The harness would not fail if nothing of it were shown.
    assert!(seen >= 10, "only {seen} outputs show a hostile text at all");
    assert!(is_raw(HOSTILE));
}

/// A bundle whose every text is hostile that may have any: what describes it, names of tasks, captures.
fn hostile_bundle(folder: &Path) {
    let inner = unpacked_bundle(folder);
    for entry in fs::read_dir(&inner).unwrap() {
        let entry = entry.unwrap();
        fs::rename(entry.path(), folder.join(entry.file_name())).unwrap();
    }
    fs::remove_dir(inner).unwrap();
    let meta = fs::read_to_string(folder.join("meta.json")).unwrap();
    let mut meta: serde_json::Value = serde_json::from_str(&meta).unwrap();
    for key in ["name", "note", "version", "arch", "clock"] {
        meta[key] = HOSTILE.into();
    }
    meta["kernel"] = format!("6.12.95-{HOSTILE}").into();
    meta["command"] = serde_json::json!([HOSTILE, HOSTILE]);
    meta["events_enabled"] = serde_json::json!([HOSTILE]);
    fs::write(folder.join("meta.json"), meta.to_string()).unwrap();
    for name in ["before", "cmdend", "after"] {
        let version = format!("Linux version 6.12.95-{HOSTILE} ({HOSTILE})\n");
        fs::write(folder.join(name).join("version"), version).unwrap();
    }
    let text = fs::read_to_string(folder.join("trace.txt")).unwrap();
    let mut hostile = String::new();
    for (number, line) in text.lines().enumerate() {
        // Some tasks only: the others show that the rest is read.
        match line.split_once('[').filter(|(task, _)| number % 7 == 0 && task.contains('-')) {
            Some((_, rest)) => hostile += &format!("h\u{1b}[31m\u{1b}c\u{9b}-71 [{rest}\n"),
            None => hostile += &format!("{line}\n"),
        }
    }
    fs::write(folder.join("trace.txt"), hostile).unwrap();
}

#[test]
fn a_hostile_bundle_commands_nothing() {
    let outer = tempfile::tempdir().unwrap();
    let path = |name: &str| outer.path().join(name).to_str().unwrap().to_owned();
    let bundle = path("bundle");
    fs::create_dir(&bundle).unwrap();
    hostile_bundle(Path::new(&bundle));
    let (page, chrome, perfetto, twin) =
        (path("page.html"), path("a.json"), path("a.pftrace"), path("twin"));
    let mut shown = 0;
    for arguments in [
        &["topo", "--bundle", &bundle][..],
        &["topo", "--bundle", &bundle, "--format", "json"],
        &["verify", &bundle],
        &["verify", &bundle, "--json"],
        &["replay", &bundle],
        &["replay", &bundle, "--json"],
        &["replay", &bundle, "--report", &page],
        &["replay", &bundle, "--bound"],
        &["replay", &bundle, "--explain", "0x10"],
        &["replay", &bundle, "--model", "linux-6.1"],
        &["trace", "export", &bundle, "--chrome", &chrome, "--perfetto", &perfetto],
        &["trace", "twin", &bundle, "--output", &twin],
        &["trace", "twin", &bundle, "--output", &path("none/twin"), "--json"],
    ] {
        let (out, err) = run_on(Path::new(&bundle), arguments);
        assert!(!is_raw(&out), "{arguments:?}: {:?}", raw(&out));
        assert!(!is_raw(&err), "{arguments:?}: {:?}", raw(&err));
        shown += usize::from(out.contains("hostile") || err.contains("hostile"));
    }
    assert!(shown >= 5, "only {shown} outputs show a hostile text at all");
    let mut files = vec![page, chrome, perfetto];
    files.extend(
        fs::read_dir(&twin)
            .into_iter()
            .flatten()
            .map(|entry| entry.unwrap().path().to_str().unwrap().to_owned()),
    );
    let mut seen = 0;
    for file in files {
        let content = fs::read(&file).unwrap_or_default();
        // A binary file has escapes by chance, but hardly these five bytes in a row.
        let raw = b"\x1b[31m";
        let is_there = content.windows(raw.len()).any(|part| part == raw);
        assert!(!is_there, "{file}");
        seen += usize::from(
            content.windows(9).any(|part| part == b"\\u001b[31" || part == b"\\\\u001b["),
        );
    }
    assert!(seen >= 2, "only {seen} files show the hostile name at all");
}

/// The first raw character with what is around it.
fn raw(text: &str) -> String {
    let at = text.find(nearpage_machine::commands_terminal).unwrap_or_default();
    text[..at].chars().rev().take(80).collect::<String>().chars().rev().collect::<String>()
        + &text[at..].chars().take(40).collect::<String>()
}

/// Arguments are a stranger's where a script passes names of files.
#[test]
fn arguments_command_nothing() {
    let mut shown = 0;
    for arguments in [
        &[HOSTILE][..],
        &["topo", HOSTILE],
        &["replay", "--model", HOSTILE],
        &["replay", &format!("--{HOSTILE}")],
        &["lab", HOSTILE],
        &["lab", "sweep", HOSTILE],
        &["proc", HOSTILE, "tree"],
        &["doctor", "--sysroot", HOSTILE],
        &["record", "--duration", HOSTILE],
        &["record", "--user", HOSTILE, "--", "true"],
        &["record", "--", HOSTILE],
        &["run", "--", HOSTILE],
        &["run", "--policy-only", "--", "true", HOSTILE],
        &["export", "--listen", HOSTILE],
        &["bench", HOSTILE],
        &["explain", HOSTILE, "--json"],
        &["topo", "--topology", HOSTILE, "--json", "--color", "never"],
    ] {
        let (out, err) = run(arguments);
        assert!(!is_raw(&out), "{arguments:?}: {:?}", raw(&out));
        assert!(!is_raw(&err), "{arguments:?}: {:?}", raw(&err));
        shown += usize::from(out.contains("hostile") || err.contains("hostile"));
    }
    assert!(shown >= 15, "only {shown} outputs show the hostile argument");
}

/// What a process says of itself to a reader.
#[test]
fn a_hostile_server_commands_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 256]);
            let _ = writeln!(stream, "nearpage 1 refused {HOSTILE}");
        }
    });
    let (socket, tree) = (socket.to_str().unwrap(), folder.path().join("tree"));
    for arguments in [
        &["proc", socket, tree.to_str().unwrap()][..],
        &["top", "--process", socket, "--once"],
        &["top", "--process", socket, "--json", "--count", "1"],
        &["export", "--process", socket, "--textfile", "-"],
    ] {
        let (out, err) = run(arguments);
        assert!(!is_raw(&out) && !is_raw(&err), "{arguments:?}: {out:?} {err:?}");
        assert!(out.contains("hostile") || err.contains("hostile"), "{arguments:?}: {err}");
    }
}

#[test]
fn a_folder_reads_no_file_of_this_machine() {
    let outer = tempfile::tempdir().unwrap();
    let secret = outer.path().join("secret");
    fs::write(&secret, "topsecret\n").unwrap();
    for link in [
        "proc/sys/kernel/osrelease",
        "proc/meminfo",
        "proc/zoneinfo",
        "sys/devices/system/node/online",
    ] {
        for target in
            [secret.as_path(), Path::new("../../../../../../../../../../../../../../etc/passwd")]
        {
            let folder = tempfile::tempdir().unwrap();
            hostile_root(folder.path());
            fs::remove_file(folder.path().join(link)).unwrap();
            symlink(target, folder.path().join(link)).unwrap();
            let path = folder.path().to_str().unwrap();
            for command in [
                &["top", "--once", "--sysroot", path][..],
                &["doctor", "--sysroot", path],
                &["topo", "--sysroot", path],
                &["verify", path],
            ] {
                let (out, err) = run(command);
                for text in [out, err] {
                    assert!(
                        !text.contains("topsecret") && !text.contains("root:"),
                        "{command:?} {link}: {text}"
                    );
                }
            }
        }
    }
}

const LOG: &str =
    include_str!("../../../nearpage-explain/tests/reports/6.1/frag-order4-kernel.log");
const COSTS: &str = include_str!("../../../nearpage-lab/costs/amd-1s64.toml");
const SCENARIO: &str = include_str!("../../../nearpage-lab/scenarios/thp-then-order0.toml");
const NUMACTL: &str = "available: 2 nodes (0-1)\nnode 0 cpus: 0 1\nnode 0 size: 2000 MB\nnode 0 free: 100 MB\n\
    node 1 cpus: 2 3\nnode 1 size: 2000 MB\nnode 1 free: 100 MB\nnode distances:\nnode   0   1\n  0:  10  21\n  1:  21  10\n";
const HWLOC: &str = "<?xml version=\"1.0\"?>\n<topology version=\"2.0\"><object type=\"Machine\" os_index=\"0\" cpuset=\"0x3\" \
    nodeset=\"0x1\"><info name=\"a\" value=\"b\"/><object type=\"NUMANode\" os_index=\"0\" cpuset=\"0x3\" nodeset=\"0x1\" \
    local_memory=\"1073741824\"/></object></topology>\n";
const TRACE: &str = "# tracer: nop\n my task-8   [001] .....  1.000003: mm_page_alloc: page=00000000ab pfn=0x10 order=0 \
    migratetype=0 gfp_flags=GFP_KERNEL|__GFP_COMP\n CPU:3 [LOST 12 EVENTS]\n load 70/71 [003]  1.000006: kmem:mm_page_pcpu_drain: \
    page=1 pfn=0x11 order=3 migratetype=1\n sh-7   [001] .....  1.000012: tracing_mark_write: nearpage: before begin\n";
const ZONES: &str = "Node 0, zone   Normal\n  per-node stats\n      nr_free_pages 700\n  pages free     700\n        min      10\n\
    \u{20}       low      20\n        high     30\n        spanned  90000\n        present  90000\n        managed  90000\n\
    \u{20}       protection: (0, 0)\n  pagesets\n    cpu: 0\n              count: 1\n              high:  2\n              batch: 3\n\
    \u{20} start_pfn:           1\n";

/// The words of a text, and what stands between quotes.
fn words(text: &str) -> Vec<std::ops::Range<usize>> {
    let is_word = |c: char| c.is_alphanumeric() || "_.".contains(c);
    let mut words: Vec<std::ops::Range<usize>> = Vec::new();
    for (at, c) in text.char_indices().filter(|(_, c)| is_word(*c)) {
        match words.last_mut().filter(|word| word.end == at) {
            Some(word) => word.end = at + c.len_utf8(),
            None => words.push(at..at + c.len_utf8()),
        }
    }
    words
}

/// Each field of each kind of input may be a stranger's. Here is one of each, drawn by a seed: `NEARPAGE_FUZZ_SEED` begins with it,
/// and `NEARPAGE_FUZZ_SECONDS` goes on for so long.
#[test]
fn one_hostile_field_commands_nothing() {
    let number = |name: &str| std::env::var(name).ok().map(|value| value.parse::<u64>().unwrap());
    let first = number("NEARPAGE_FUZZ_SEED").unwrap_or(0);
    let time = number("NEARPAGE_FUZZ_SECONDS").map(Duration::from_secs);
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let root = path("root");
    hostile_root(Path::new(&root));
    fs::write(path("root/proc/version"), "Linux version 6.1.0 (a@b) c\n").unwrap();
    fs::write(path("root/proc/sys/kernel/osrelease"), "6.1.0\n").unwrap();
    let (zones, page, file) = (path("root/proc/zoneinfo"), path("page.html"), path("input"));
    let (chrome, perfetto) = (path("a.json"), path("a.pftrace"));
    let inputs: [(&str, &str, &[&[&str]]); 7] = [
        (LOG, &file, &[&["explain", &file], &["explain", &file, "--json", "--report", &page]]),
        (SCENARIO, &file, &[&["lab", &file], &["lab", &file, "--csv"]]),
        (
            COSTS,
            &file,
            &[&["lab", "costs", &file], &["lab", "thp-then-order0", "--costs", &file, "--json"]],
        ),
        (
            NUMACTL,
            &file,
            &[&["topo", "--topology", &file], &["topo", "--topology", &file, "--format", "json"]],
        ),
        (
            HWLOC,
            &file,
            &[&["topo", "--topology", &file], &["topo", "--topology", &file, "--format", "json"]],
        ),
        (
            TRACE,
            &file,
            &[
                &["trace", "summary", &file],
                &["trace", "summary", &file, "--json"],
                &[
                    "trace",
                    "export",
                    "--trace",
                    &file,
                    "--chrome",
                    &chrome,
                    "--perfetto",
                    &perfetto,
                ],
            ],
        ),
        (
            ZONES,
            &zones,
            &[
                &["top", "--once", "--sysroot", &root],
                &["top", "--csv", "--count", "1", "--sysroot", &root],
                &["top", "--json", "--count", "1", "--sysroot", &root],
                &["export", "--sysroot", &root, "--textfile", "-"],
                &["doctor", "--sysroot", &root],
                &["verify", &root],
            ],
        ),
    ];
    // A text in quotes may have anything by escapes.
    let quoted = serde_json::to_string(HOSTILE).unwrap().replace('\u{7f}', "\\u007f");
    let quoted = quoted.trim_matches('"');
    let (begun, mut shown) = (Instant::now(), 0);
    for seed in first.. {
        if time.map_or(seed >= first + 6, |time| begun.elapsed() >= time) {
            break;
        }
        let mut random = fastrand::Rng::with_seed(seed);
        for (text, file, commands) in inputs {
            let words = words(text);
            let word = words[random.usize(..words.len())].clone();
            let hostile = if random.bool() { HOSTILE } else { quoted };
            let changed = [&text[..word.start], hostile, &text[word.end..]].concat();
            fs::write(file, &changed).unwrap();
            for arguments in commands {
                let (out, err) = run_on(Path::new(file), arguments);
                let at =
                    format!("NEARPAGE_FUZZ_SEED={seed} {arguments:?} {:?}", &text[word.clone()]);
                assert!(!is_raw(&out), "{at}: {:?}", raw(&out));
                assert!(!is_raw(&err), "{at}: {:?}", raw(&err));
                shown += usize::from(out.contains("hostile") || err.contains("hostile"));
                for file in [&page, &chrome, &perfetto] {
                    let content = fs::read(file).unwrap_or_default();
                    let is_there = content.windows(5).any(|part| part == b"\x1b[31m");
                    assert!(!is_there, "{at}: {file}");
                }
            }
        }
    }
    assert!(shown >= 6, "only {shown} outputs show the hostile field at all");
}

/// No number makes a scenario endless: what counts is bounded when it is read.
#[test]
fn no_number_of_a_scenario_is_without_a_bound() {
    let (mut refused, mut complaints) = (0, Vec::new());
    for path in files(&root().join("crates/nearpage-lab/scenarios"), ".toml") {
        let text = fs::read_to_string(&path).unwrap();
        let numbers = words(&text).into_iter().filter(|word| {
            let is_own = !text[..word.start].ends_with(['"', '-', '#', '/']);
            let is_number = text[word.clone()].bytes().all(|byte| byte.is_ascii_digit());
            let line = &text[text[..word.start].rfind('\n').map_or(0, |at| at + 1)..word.start];
            let is_text = line.matches('"').count() % 2 == 1 || line.contains('#');
            // A scenario is compared with published figures: it counts nothing by them.
            let is_published = line.starts_with("rows") || line.trim_start().starts_with('[');
            is_own && is_number && !is_text && !is_published
        });
        for word in numbers {
            let changed = [&text[..word.start], "9223372036854775807", &text[word.end..]].concat();
            match nearpage_lab::Scenario::from_bytes("changed", changed.as_bytes()) {
                Err(_) => refused += 1,
                Ok(_) => {
                    let line = 1 + text[..word.start].matches('\n').count();
                    complaints.push(format!("{}:{line}: 2^63 - 1 is accepted", path.display()));
                }
            }
        }
    }
    assert!(refused >= 50, "{refused}");
    complain("numbers without a bound", &complaints);
}

/// A scenario names tables of costs and recordings: no other file than those of the current folder is read for it.
#[test]
fn a_scenario_reads_no_file_of_this_machine() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    fs::create_dir(folder.path().join("work")).unwrap();
    write("secret", "topsecret\n");
    symlink("../secret", folder.path().join("work/link")).unwrap();
    write("work/own", "topsecret\n");
    let scenario = include_str!("../../../nearpage-lab/scenarios/pcp-autotune.toml");
    let (costs, trace) = ("costs = \"intel-2s128\"", "trace = \"gcc\"");
    let run = |key: &str, known: &str, name: &str| {
        assert!(scenario.contains(known), "{known}");
        write("work/s.toml", &scenario.replace(known, &format!("{key} = {name:?}")));
        let mut command = Command::cargo_bin("nearpage").unwrap();
        let output =
            command.current_dir(folder.path().join("work")).args(["lab", "s.toml"]).output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    };
    let secret = folder.path().join("secret").to_str().unwrap().to_owned();
    for (key, known) in [("costs", costs), ("trace", trace)] {
        for name in ["/etc/passwd", "../secret", "link", &secret, "/dev/zero"] {
            let said = run(key, known, name);
            let is_told = said.contains("expected a file of the folder itself");
            assert!(is_told && !said.contains("topsecret") && !said.contains("root:"), "{said}");
        }
        // The harness would see what is read.
        assert!(run(key, known, "own").contains("topsecret"), "{key}");
        assert!(run(key, known, "none").contains("none"));
    }
}

/// A program with more rights than its user obeys no variable: a socket of statistics in any folder would be one.
#[test]
fn a_setuid_program_reads_no_variable() {
    const TEST: &str = "a_setuid_program_reads_no_variable";
    const OWNER: u32 = 12_345;
    const CALLER: u32 = 12_346;
    let folder = tempfile::tempdir().unwrap();
    // SAFETY: asks only.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("SKIPPED: {TEST}: only root gives files away");
        return;
    }
    let path = folder.path().join("nearpage");
    fs::copy(assert_cmd::cargo::cargo_bin!("nearpage"), &path).unwrap();
    chown(&path, Some(OWNER), Some(OWNER)).unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o711)).unwrap();
    let nodes = |mode: u32| {
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        let mut command = std::process::Command::new(&path);
        command.uid(CALLER).gid(CALLER).env("NEARPAGE_NUMA", "fake=5");
        let output = command.args(["topo", "--format", "json"]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let plan: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        plan["nodes"].as_array().unwrap().len()
    };
    assert_eq!(nodes(0o755), 5);
    let mount = nix::sys::statvfs::statvfs(folder.path()).unwrap();
    if mount.flags().contains(nix::sys::statvfs::FsFlags::ST_NOSUID) {
        eprintln!("SKIPPED: {TEST}: the folder for temporary files is mounted nosuid");
        return;
    }
    for mode in [0o4755, 0o2755] {
        assert_ne!(nodes(mode), 5, "{mode:o}");
    }
}

/// Commands that read strangers' files have given up their rights before they read: while they wait for the first byte, too.
#[test]
fn reading_commands_have_no_more_rights_than_they_need() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (timeline, twin) = (path("a.json"), path("twin"));
    for arguments in [
        &["explain", "-"][..],
        &["lab", "-"],
        &["replay", "-"],
        &["replay", "rules", "-"],
        &["replay", "sweep", "-", "--over", "pcp.batch_scale_max=0..1"],
        &["topo", "--topology", "-"],
        &["topo", "--bundle", "-"],
        &["verify", "-"],
        &["doctor", "--sysroot", "-"],
        &["top", "--once", "-"],
        &["export", "--sysroot", "-", "--textfile", "-"],
        &["whatif", "-", "--change", "pcp.batch_scale_max=0"],
        &["trace", "export", "-", "--chrome", &timeline],
        &["trace", "twin", "-", "--output", &twin],
        &["trace", "summary", "-"],
    ] {
        let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin!("nearpage"));
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let given_up = |id: &str| {
            let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
            status.contains("NoNewPrivs:\t1\n") && status.contains("Seccomp:\t2\n")
        };
        let id = child.id().to_string();
        let clerk = || fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
        let makes_files = arguments.iter().any(|word| [&*timeline, &twin].contains(word));
        // Who makes the outputs, too, is another process.
        let has_given_up = || {
            let clerk = clerk();
            let of_clerk = clerk.split_whitespace().all(given_up);
            given_up(&id) && of_clerk && (!makes_files || !clerk.is_empty())
        };
        let until = Instant::now() + Duration::from_secs(20);
        while !has_given_up() && Instant::now() < until {
            thread::sleep(Duration::from_millis(5));
        }
        let has_given_up = has_given_up();
        child.kill().unwrap();
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(has_given_up, "{arguments:?}: {said}");
    }
}

/// What the program that started it left open, a connection, say, a reader does not keep; what the command line names, it does.
#[test]
fn descriptors_that_no_argument_names_are_closed() {
    let nearpage = assert_cmd::cargo::cargo_bin!("nearpage");
    let script = "exec 8</dev/null 9</dev/null; exec \"$0\" explain /dev/fd/8 -";
    let mut command = std::process::Command::new("sh");
    command.args(["-c", script]).arg(nearpage).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut child = command.stderr(Stdio::null()).spawn().unwrap();
    let of = |name: &str| format!("/proc/{}/{name}", child.id());
    let has_given_up = || {
        let status = fs::read_to_string(of("status")).unwrap_or_default();
        status.contains("Seccomp:\t2\n")
    };
    let until = Instant::now() + Duration::from_secs(20);
    while !has_given_up() && Instant::now() < until {
        thread::sleep(Duration::from_millis(5));
    }
    let is_open = |number: u32| fs::read_link(of(&format!("fd/{number}"))).is_ok();
    let found = (has_given_up(), is_open(8), is_open(9));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(found, (true, true, false));
}

/// A sum that wraps in a reader of strangers' bytes is a panic and no wrong answer, also in releases: of the programs, and of the
/// package for Python.
#[test]
fn readers_check_their_sums_in_releases() {
    let of = |manifest: &str| -> toml::Table {
        toml::from_str(&fs::read_to_string(root().join(manifest)).unwrap()).unwrap()
    };
    let [programs, python] = [of("Cargo.toml"), of("python/Cargo.toml")];
    let readers =
        ["bundle", "doctor", "explain", "kcore", "lab", "machine", "replay", "trace", "watch"];
    for reader in readers.map(|reader| format!("nearpage-{reader}")) {
        let is_checked = |manifest: &toml::Table| {
            manifest["profile"]["release"]["package"][&*reader]["overflow-checks"].as_bool()
        };
        assert_eq!(is_checked(&programs), Some(true), "{reader}");
        assert_eq!(is_checked(&python), Some(true), "{reader} of the package for Python");
    }
    // What is built for packages says nothing else.
    assert_eq!(programs["profile"]["dist"]["inherits"].as_str(), Some("release"));
    let dist = toml::to_string(&programs["profile"]["dist"]).unwrap();
    assert!(!dist.contains("overflow-checks"), "{dist}");
}

/// Words that only a door may have, each with the files that are one.
const DOORS: [(&str, &[&str]); 16] = [
    ("tar::Archive::new", &["nearpage-machine/src/packing.rs"]),
    ("MultiGzDecoder::new", &["nearpage-machine/src/packing.rs"]),
    ("MultiBzDecoder::new", &["nearpage-machine/src/packing.rs"]),
    // Chunks of trace.dat announce their length, and are unpacked to no more.
    (
        "StreamingDecoder::new",
        &["nearpage-machine/src/packing.rs", "nearpage-trace/src/binary/trace_dat.rs"],
    ),
    // Bytes, not text: a bundle, and a timeline.
    (
        "io::stdout()",
        &[
            "nearpage-cli/src/commands.rs",
            "nearpage-cli/src/commands/failure.rs",
            "nearpage-cli/src/commands/record.rs",
            "nearpage-cli/src/commands/trace.rs",
            "nearpage-top/src/terminal.rs",
        ],
    ),
    ("println!", &[]),
    // Readers bound what they read from an open file; the test of limits reaches each bound.
    (
        "File::open(",
        &[
            "nearpage-machine/src/input.rs",
            "nearpage-bundle/src/recording/open.rs",
            "nearpage-trace/src/record/capture.rs",
            "nearpage-trace/src/record/instance.rs",
            "nearpage-trace/src/record/rings.rs",
            "nearpage-replay/src/packed.rs",
            "nearpage-lab/src/text.rs",
            "nearpage-watch/src/process.rs",
            "nearpage-cli/src/commands/explain/inputs.rs",
            "nearpage-cli/src/commands/run/child.rs",
            "nearpage-cli/src/commands/run/program.rs",
            "nearpage-cli/src/commands/trace.rs",
            "nearpage-cli/src/memory.rs",
        ],
    ),
    // Files of the running kernel, which are short; what the program of `run` wrote.
    (
        "fs::read_to_string(",
        &[
            "nearpage-trace/src/record/cgroups.rs",
            "nearpage-trace/src/record/meta.rs",
            "nearpage-trace/src/record/surroundings.rs",
            "nearpage-trace/src/record/tracefs.rs",
            "nearpage-watch/src/process.rs",
            "nearpage-watch/src/traffic.rs",
            "nearpage-cli/src/commands/record.rs",
            "nearpage-cli/src/commands/run/child.rs",
        ],
    ),
    (
        "fs::read(",
        &[
            "nearpage-trace/src/record/instance.rs",
            "nearpage-trace/src/record/recorder.rs",
            "nearpage-trace/src/record/rings.rs",
            "nearpage-trace/src/record/surroundings.rs",
            "nearpage-trace/src/record/target.rs",
        ],
    ),
    // Folders that were just made; a file of tracefs; pages of a manual.
    ("File::create", &["nearpage-trace/src/record/instance.rs", "nearpage-replay/src/twin.rs"]),
    (" fs::write(", &["nearpage-cli/src/commands/man.rs"]),
    // Files and folders for others to find: commands that read strangers' files leave them to their clerk.
    ("PageFile::at(", &["nearpage-cli/src/outputs/desk.rs"]),
    (
        "OutputFolder::",
        &[
            "nearpage-report/src/file.rs",
            "nearpage-trace/src/record/output.rs",
            "nearpage-watch/src/copy.rs",
            "nearpage-watch/src/tape/writer.rs",
            "nearpage-cli/src/outputs/desk.rs",
        ],
    ),
    (
        "tempfile::tempfile",
        &[
            "nearpage-trace/src/scratch.rs",
            "nearpage-trace/src/record/output.rs",
            "nearpage-cli/src/outputs/desk.rs",
        ],
    ),
    (".create(true)", &[]),
    // None of these runs with more rights than its user; the libraries that may are not among these crates.
    (
        "env::var",
        &[
            "nearpage-cli/src/commands/record/program.rs",
            "nearpage-cli/src/commands/record/user.rs",
            "nearpage-cli/src/commands/run/child.rs",
            "nearpage-cli/src/commands/run/program.rs",
            "nearpage-cli/src/sudo.rs",
            "nearpage-cli/src/commands/top.rs",
        ],
    ),
];

#[test]
fn nobody_goes_around_a_door() {
    let folders = [
        "machine", "bundle", "trace", "replay", "lab", "report", "watch", "top", "explain",
        "doctor", "cli",
    ];
    let mut found = [0; DOORS.len()];
    for folder in folders {
        let folder = root().join(format!("crates/nearpage-{folder}/src"));
        for path in files(&folder, ".rs") {
            let text = fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
            let is_test = path.ends_with("tests.rs");
            for ((word, doors), found) in DOORS.iter().zip(&mut found) {
                let uses = code
                    .lines()
                    .any(|line| !line.trim_start().starts_with("//") && line.contains(word));
                if uses && !is_test {
                    let is_door = doors.iter().any(|door| path.ends_with(door));
                    assert!(is_door, "{}: {word} goes around its door", path.display());
                    *found += 1;
                }
            }
        }
    }
    for ((word, doors), found) in DOORS.iter().zip(found) {
        assert_eq!(found, doors.len(), "{word}: a door is listed that there is not");
    }
}
