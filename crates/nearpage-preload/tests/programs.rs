//! Programs under the library: C and C++ of our own, and those that are installed. Each must do what it does without, and
//! the library's own counters must show that it served them.

mod common;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::{Child, Command, Output};

use common::{compiled, folder, is_there, library, report_of};

/// Runs a program under the library with options; returns what it printed and how many allocations were counted.
fn under(options: &str, program: &str, arguments: &[&str]) -> (Output, u64) {
    let (report, counted) = report_of();
    let output = Command::new(program)
        .args(arguments)
        .env("LD_PRELOAD", library())
        .env("NEARPAGE_MALLOC", options)
        .env("NEARPAGE_MALLOC_REPORT", &report)
        .output()
        .expect("it starts");
    let counted = counted(&report);
    (output, counted)
}

/// Runs a program with and without the library, in each mode, and compares.
fn same(program: &str, arguments: &[&str], at_least: u64) {
    if !is_there(program) {
        return;
    }
    let plain = Command::new(program).args(arguments).output().expect("it starts");
    for options in ["", "hardened=1", "fake=4", "policy=interleave,fake=2", "huge=transparent"] {
        let (output, counted) = under(options, program, arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status, plain.status, "{program}, {options}: {errors}");
        assert!(output.stdout == plain.stdout, "{program}, {options}: other output; {errors}");
        assert!(!errors.contains("nearpage-malloc"), "{program}, {options}: {errors}");
        assert!(counted >= at_least, "{program}, {options}: {counted} allocations were counted");
    }
}

#[test]
fn calls_answer_as_posix_says() {
    let Some(program) = compiled("gcc", "calls.c", "calls") else { return };
    for options in ["", "hardened=1", "fake=4"] {
        let (output, counted) = under(options, &program, &[]);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{options}: {} {errors}", output.status);
        assert!(counted > 400_000, "{options}: {counted}");
    }
}

#[test]
fn the_library_is_opened_and_closed() {
    let Some(program) = compiled("gcc", "opened.c", "opened") else { return };
    let output = Command::new(&program).arg(library()).output().expect("it starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{} {errors}", output.status);
}

/// It is counted all the same, and its own files have what it wrote.
#[test]
fn a_program_closes_all_descriptors() {
    let Some(program) = compiled("gcc", "closes.c", "closes") else { return };
    let own = folder().join("own");
    let (output, counted) = under("", &program, &[own.to_str().expect("a name")]);
    assert!(output.status.success(), "{}", output.status);
    assert_eq!(std::fs::read_to_string(own).expect("its own file"), "own\n");
    assert!(counted >= 100, "{counted} allocations were counted");
}

#[test]
fn new_and_delete_in_all_forms() {
    let Some(program) = compiled("g++", "news.cpp", "news") else { return };
    for options in ["", "hardened=1"] {
        let (output, counted) = under(options, &program, &[]);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{options}: {} {errors}", output.status);
        assert!(counted > 40_000, "{options}: {counted}");
    }
}

#[test]
fn wrong_frees_end_a_hardened_program() {
    let Some(program) = compiled("gcc", "calls.c", "wrong") else { return };
    for (how, text) in [
        ("double", "double free: the last operation on this object of 112 bytes was a free"),
        ("away", "double free: the last operation on this object of 112 bytes was a free"),
        ("home", "double free: the last operation on this object of 112 bytes was a free"),
        ("inner", "an address inside of an object of 112 bytes"),
        ("odd", "an address inside of an object of 112 bytes"),
        ("large", "a foreign pointer"),
        ("foreign", "a foreign pointer"),
        ("written", "was written to after its last operation, a free"),
    ] {
        let (output, _) = under("hardened=1", &program, &[how]);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains(text), "{how}: {errors}");
        assert!(errors.contains("0x"), "{how}: {errors}");
        assert!(!output.status.success(), "{how}");
    }
}

#[test]
fn wrong_options_are_told_and_the_program_runs() {
    let (output, _) = under("polcy=bind,hardened=1", "/bin/echo", &["near"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.stdout, b"near\n");
    assert!(errors.contains("\"polcy=bind\" means nothing; accepted are policy="), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
    let no_text = OsStr::from_bytes(b"hardened=1,report=/tmp/\xff");
    let mut echo = Command::new("/bin/echo");
    echo.arg("near").env("LD_PRELOAD", library()).env("NEARPAGE_MALLOC", no_text);
    let output = echo.output().expect("it starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.stdout, b"near\n");
    assert!(errors.contains("NEARPAGE_MALLOC: invalid utf-8"), "{errors}");
    let (output, counted) = under("policy=bind,nodes=0+61+63", "/bin/echo", &["near"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.stdout == b"near\n" && counted > 0, "{errors}");
    assert!(errors.contains("nodes=61+63 is not there and is left out"), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
}

#[test]
fn little_memory_and_few_addresses() {
    let Some(program) = compiled("gcc", "calls.c", "limited") else { return };
    // Addresses for 200 MB and all that the library reserves in vain: the program runs on what there is.
    for kib in [200_000, 1_000_000, 8_000_000] {
        let script = format!("ulimit -v {kib}; exec {program} none");
        let (output, _) = under("", "sh", &["-c", &script]);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{kib}: {} {errors}", output.status);
    }
}

#[test]
fn python_is_the_same() {
    let script = "import json, re, threading, subprocess\n\
        print(sum(len(json.dumps({'a': i, 'b': [i] * 10})) for i in range(20000)))\n\
        def work(): [str(i) * 20 for i in range(20000)]\n\
        ts = [threading.Thread(target=work) for _ in range(4)]\n\
        [t.start() for t in ts]; [t.join() for t in ts]\n\
        print(subprocess.check_output(['echo', 'child']))\n\
        print(len(re.findall('[a-c]+', 'abcd' * 50000)))";
    same("python3", &["-c", script], 10_000);
}

#[test]
fn sort_is_the_same() {
    let file = folder().join("lines");
    let mut state = 1_u64;
    let lines: String = (0..100_000)
        .map(|_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
            format!("{}\n", state >> 33)
        })
        .collect();
    std::fs::write(&file, lines).expect("the file");
    same("sort", &["--parallel=2", "-n", file.to_str().expect("a name")], 10);
}

#[test]
fn git_is_the_same() {
    if !is_there("git") {
        return;
    }
    let repository = folder().join("repository");
    let script = format!(
        "set -e; git init -q {0}; cd {0}; for i in $(seq 1 60); do seq $i $((i * 50)) > f$i; done; git add .; \
         git -c user.name=n -c user.email=e commit -qm one; git -c gc.auto=0 gc -q; git fsck",
        repository.display()
    );
    let (output, counted) = under("", "sh", &["-c", &script]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert!(counted > 1000, "{counted}");
    same("git", &["-C", repository.to_str().expect("a name"), "log", "--stat"], 100);
}

#[test]
fn compilers_are_the_same() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/calls.c");
    let source = source.to_str().expect("a name").to_owned();
    for compiler in ["gcc", "clang"] {
        same(compiler, &["-O2", "-w", "-S", "-o", "-", &source], 1000);
    }
}

/// A program that knows nothing of nearpage and serves its figures at `path`. It has begun, and ends with its input.
fn serving(path: &Path) -> Child {
    use std::io::{Read, Write};

    let mut program = Command::new("cat")
        .env("LD_PRELOAD", library())
        .env("NEARPAGE_STATS", path)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("it starts");
    program.stdin.as_mut().unwrap().write_all(b"x").unwrap();
    program.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    program
}

/// A program that knows nothing of nearpage serves the figures of its pages while it runs.
#[test]
fn figures_are_served_over_a_socket() {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    let mut program = serving(&folder().join("served.%p"));
    let own = folder().join(format!("served.{}", program.id()));
    let mut stream = UnixStream::connect(&own).expect("it serves");
    stream.write_all(b"nearpage 1 proc/buddyinfo\nnearpage 1 nearpage/memory.json\n").unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("nearpage 1 ok ") && answer.contains("Node 0, zone "), "{answer}");
    assert!(answer.contains("\"program\": \"cat\""), "{answer}");
    drop(program.stdin.take());
    assert!(program.wait().unwrap().success());
    assert!(!own.exists(), "the socket goes with the process");
}

/// Programs that a serving program starts inherit the variable: they serve nothing, and print nothing. An unrelated program
/// prints that the name is taken.
#[test]
fn programs_of_a_program_that_serves_are_not_told() {
    let path = folder().join("served-once");
    let shell = |command: &str| {
        let output = Command::new("sh")
            .args(["-c", command])
            .env("LD_PRELOAD", library())
            .env("NEARPAGE_STATS", &path)
            .output()
            .expect("it starts");
        assert!(output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert_eq!(shell("ls / > /dev/null; sh -c 'ls /; true' > /dev/null; true"), "");
    let mut other = serving(&path);
    let told = shell("true");
    drop(other.stdin.take());
    assert!(other.wait().unwrap().success());
    assert!(told.contains("NEARPAGE_STATS: ") && told.contains("is there already"), "{told}");
}

#[test]
fn a_program_that_shrinks_and_makes_no_call_is_small_within_two_seconds() {
    let Some(program) = compiled("gcc", "shrinks.c", "shrinks") else { return };
    let resident = |options: &str, size: &str| -> Vec<u64> {
        let (output, _) = under(options, &program, &[size]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.split_whitespace().map(|number| number.parse().expect("a number")).collect()
    };
    for (options, size) in [("", "40"), ("", "3000"), ("fake=2", "100000"), ("", "6000000")] {
        let [most, left] = resident(options, size)[..] else { panic!("two numbers") };
        assert!(
            most > 190_000 && left < 16_384,
            "{options}, {size} bytes: {left} KiB of {most} are left"
        );
    }
    // The harness can tell: without the thread nobody looks.
    let [_, left] = resident("background=0", "3000")[..] else { panic!("two numbers") };
    assert!(left > 16_384, "{left} KiB are left");
}

/// Resident KiB, six times an hour of model time.
fn churned(program: &str, hours: usize, how: &[&str]) -> Vec<u64> {
    let hours_text = hours.to_string();
    let words = [&[hours_text.as_str()], how].concat();
    let (output, counted) = under("", program, &words);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(counted > 100_000, "{counted} allocations were counted");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let resident: Vec<u64> = text.lines().map(|line| line.parse().expect("a number")).collect();
    assert_eq!(resident.len(), hours * 6);
    resident
}

/// Whether the last quarter had more than the time from a third to a half on, in which the heap has its shape.
fn has_grown(resident: &[u64]) -> bool {
    let all = resident.len();
    let most = |part: &[u64]| *part.iter().max().expect("a sample");
    let (early, late) = (most(&resident[all / 3..all / 2]), most(&resident[all * 3 / 4..]));
    late * 100 > early * 103
}

/// `NEARPAGE_CHURN_HOURS=24` is a day of model time, half a minute of ours.
#[test]
fn hours_of_churn_at_constant_use_do_not_grow() {
    let Some(program) = compiled("gcc", "churn.c", "churn") else { return };
    let hours = std::env::var("NEARPAGE_CHURN_HOURS").map_or(4, |hours| hours.parse().unwrap());
    let resident = churned(&program, hours, &[]);
    assert!(!has_grown(&resident), "{resident:?}");
    // The harness can tell: 200 bytes each tenth of a second.
    let leaks = churned(&program, hours, &["leak"]);
    assert!(has_grown(&leaks), "{leaks:?}");
}

/// What a report says of nodes: bytes by node, bytes on another node than their heap, pages from elsewhere by reason.
fn by_nodes(program: &str, how: &[&str]) -> Option<(u64, u64, u64)> {
    let (report, _) = report_of();
    let output = Command::new(program)
        .args(how)
        .env("LD_PRELOAD", library())
        .env("NEARPAGE_MALLOC", "fake=4")
        .env("NEARPAGE_MALLOC_REPORT", &report)
        .output()
        .expect("it starts");
    if output.status.code() == Some(3) {
        eprintln!("SKIPPED: one CPU alone (run it on a machine with two)");
        return None;
    }
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let line = std::fs::read_to_string(&report).expect("a report");
    let after = |key: &str| line.split(&format!("\"{key}\":")).nth(1).expect("a key").to_owned();
    let sum = |key: &str| -> u64 {
        let list = after(key);
        let list = list[1..].split(']').next().expect("a list");
        list.split(',').map(|number| number.trim().parse::<u64>().expect("a number")).sum()
    };
    let wrong = after("wrong_node_bytes").split(',').next().expect("a number").parse();
    Some((sum("bytes_by_node"), wrong.expect("a number"), sum("elsewhere")))
}

#[test]
fn pinned_threads_have_their_pages_on_their_node() {
    let Some(program) = compiled("gcc", "nodes.c", "nodes") else { return };
    let Some((all, wrong, elsewhere)) = by_nodes(&program, &[]) else { return };
    assert!(all > 500 << 20, "{all} bytes are counted by node");
    assert!(wrong * 100 <= all, "{wrong} of {all} bytes are on another node");
    assert!(wrong <= elsewhere << 12, "{wrong} bytes, and reasons for {elsewhere} pages");
    // The harness can tell: threads that move take what they have along.
    let (all, wrong, _) = by_nodes(&program, &["moves"]).expect("CPUs");
    assert!(wrong * 100 > all, "{wrong} of {all} bytes");
}
