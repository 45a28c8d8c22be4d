//! `nearpage bench` as a user runs it: tables, JSON, error messages, exit codes.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output};

use serde_json::Value;

/// Runs so shortly that the figures mean nothing.
fn quick(arguments: &[&str]) -> Command {
    bench(&[&["--quick", "--rounds", "1"], arguments].concat())
}

fn bench(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nearpage"));
    command.arg("bench").args(arguments);
    command.env_remove("NEARPAGE_NUMA").env_remove("NEARPAGE_RSEQ").env_remove("NEARPAGE_ENV");
    command
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(&output.stdout), text(&output.stderr))
}

fn stdout(arguments: &[&str]) -> String {
    let output = quick(arguments).output().unwrap();
    let (stdout, stderr) = texts(&output);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {stderr}");
    // The progress bar is for terminals only.
    assert_eq!(stderr, "", "{arguments:?}");
    stdout
}

/// The message of a run that is refused with exit code 2.
fn refusal(arguments: &[&str]) -> String {
    let output = bench(arguments).output().unwrap();
    let (stdout, stderr) = texts(&output);
    assert_eq!((output.status.code(), stdout.as_str()), (Some(2), ""), "{arguments:?}: {stderr}");
    stderr
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&stdout(&[arguments, &["--json"]].concat())).unwrap()
}

fn keys(value: &Value) -> BTreeSet<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

/// The distinct values of a field of the rows.
fn distinct<'a>(document: &'a Value, field: &str) -> BTreeSet<&'a str> {
    document["rows"].as_array().unwrap().iter().map(|row| row[field].as_str().unwrap()).collect()
}

const TAILS: [&str; 4] = ["order0_alloc", "order0_free", "order9_alloc", "order9_free"];
/// What nearpage counts, in rows of page allocators.
const MOVES: [&str; 3] =
    ["pages_moved", "zone_locks_per_1000_pages", "shared_writes_per_1000_pages"];

#[test]
fn everything_as_json() {
    let document = json(&[]);
    assert_eq!(keys(&document), BTreeSet::from(["machine", "rows", "schema"]));
    assert_eq!(document["schema"], 1);
    for row in document["rows"].as_array().unwrap() {
        let ns = ["ns_max", "ns_median", "ns_min", "ns_p99"];
        let expected = ["allocator", "bench", "n", "threads"].into_iter().chain(ns);
        let times_each_call = TAILS.contains(&row["bench"].as_str().unwrap());
        let tails = ["ns_p50", "ns_p999", "ns_p9999"].into_iter().filter(|_| times_each_call);
        let moves = MOVES.into_iter().filter(|_| row.get(MOVES[0]).is_some());
        assert_eq!(keys(row), BTreeSet::from_iter(expected.chain(tails).chain(moves)));
        let works = ["single_alloc", "single_free", "bulk_alloc", "bulk_free"];
        match works.contains(&row["bench"].as_str().unwrap()) {
            true => assert!(row["ns_p99"].is_null(), "{row}"),
            false => assert!(row["ns_p99"].as_f64().unwrap() > 0.0, "{row}"),
        }
        let ns = |name: &str| row[name].as_f64().unwrap();
        assert!(0.0 < ns("ns_median"), "{row}");
        assert!(ns("ns_min") <= ns("ns_median") && ns("ns_median") <= ns("ns_max"), "{row}");
        check_n(row);
    }
    let mut benches = BTreeSet::from([
        "pair",
        "fill",
        "free_lifo",
        "free_random",
        "replace",
        "single_alloc",
        "single_free",
        "bulk_alloc",
        "bulk_free",
        "lock_pair",
        "obj_pair",
        "obj_fill",
        "obj_free_random",
        "obj_pair_near",
        "obj_pair_memoryless",
        "obj_pair_memoryless_old",
    ]);
    let orders: Vec<String> = (0..=10).map(|order| format!("order{order}_pair")).collect();
    benches.extend(orders.iter().map(String::as_str));
    if document["machine"]["cpus"].as_u64() > Some(1) {
        benches.extend(["cross", "lock_contended", "obj_cross"].into_iter().chain(TAILS));
    }
    assert_eq!(distinct(&document, "bench"), benches);
    let allocators = distinct(&document, "allocator");
    assert!(allocators.is_superset(&BTreeSet::from([
        "nearpage",
        "nearpage-hardened",
        "glibc",
        "mmap"
    ])));
    let uses_rseq = document["machine"]["storage"].as_str().unwrap().starts_with("rseq");
    assert_eq!(allocators.contains("nearpage-locked"), uses_rseq);
}

/// What `n` and `threads` are, by the bench.
fn check_n(row: &Value) {
    let (n, threads) = (row["n"].as_u64().unwrap(), row["threads"].as_u64().unwrap());
    match row["bench"].as_str().unwrap() {
        _ if row["allocator"] == "rseq-limit-pair" => assert_eq!(n, 1, "{row}"),
        "single_alloc" | "single_free" | "bulk_alloc" | "bulk_free" => {
            assert!(n.is_power_of_two() && n <= 16384 && threads == 1, "{row}");
        }
        bench @ ("fill" | "free_lifo" | "free_random" | "replace") => {
            let pages = match row["allocator"].as_str().unwrap() {
                "mmap" => 200,
                "glibc" => 2000,
                _ if n > 100_000 && bench != "replace" => 200_000,
                _ => 20_000,
            };
            assert!((pages - threads..=pages).contains(&n), "{row}");
        }
        "cross" => assert_eq!((n, threads), (1, 2), "{row}"),
        "lock_pair" => assert_eq!((n, threads), (0, 1), "{row}"),
        "lock_contended" => assert_eq!((n, threads), (0, 2), "{row}"),
        "obj_cross" => assert_eq!((n, threads), (64, 2), "{row}"),
        bench if TAILS.contains(&bench) => assert_eq!((n, threads), (1, 2), "{row}"),
        "obj_pair" => assert!([64, 256, 1024].contains(&n), "{row}"),
        bench if bench.starts_with("obj_") => assert_eq!(n, 64, "{row}"),
        _ => assert_eq!(n, 1, "{row}"),
    }
}

/// What a page costs is said beside the limit, glibc and the kernel, whatever is done with it.
#[test]
fn pages_are_measured_beside_the_limit_glibc_and_mmap() {
    let document = json(&["pairs", "random", "replace", "cross", "orders"]);
    let uses_rseq = document["machine"]["storage"].as_str().unwrap().starts_with("rseq");
    let rows = document["rows"].as_array().unwrap();
    let has = |work: &Value, threads: &Value, allocator: &str| {
        let is_it = |row: &&Value| {
            row["bench"] == *work && row["threads"] == *threads && row["allocator"] == allocator
        };
        rows.iter().filter(is_it).count() == 1
    };
    for row in rows.iter().filter(|row| row["allocator"] == "nearpage") {
        let (work, threads) = (&row["bench"], &row["threads"]);
        let limit = if work == "pair" { "rseq-limit" } else { "rseq-limit-pair" };
        let limit = (uses_rseq && work != "replace").then_some(limit);
        for allocator in ["glibc", "mmap"].into_iter().chain(limit) {
            assert!(has(work, threads, allocator), "{allocator} beside {row}");
        }
    }
}

/// Tables have the rows of all who took part under one title, also of those who hold fewer pages.
#[test]
fn a_table_names_who_holds_fewer_pages() {
    let text = stdout(&["random"]);
    let has_all = |part: &&str| part.contains(": ns per") && !part.contains(" 200000 pages");
    let tables: Vec<&str> = text.split("\n\n").filter(has_all).collect();
    for table in &tables {
        assert!(table.trim_start().contains(" per page, 20000 pages, "), "{table}");
        for fewer in ["glibc, 2000 pages", "mmap, 200 pages"] {
            assert!(table.contains(&format!("\n {fewer} ")), "{table}");
        }
    }
    assert!(tables.len() >= 3, "{text}");
}

/// Whether each row is of one CPU, and its figures as a table has them: median, min, max, p99.
fn figures(text: &str) -> Vec<(bool, [f64; 4])> {
    let (mut first, mut is_of_one) = (None, false);
    let mut figures = Vec::new();
    for line in text.lines() {
        // Names may have a blank in them.
        let cells: Vec<&str> = line.split("  ").map(str::trim).filter(|c| !c.is_empty()).collect();
        if let Some(p99) = cells.iter().position(|&cell| cell == "p99") {
            first = Some(p99 - 3);
        } else if let Some(cells) = first.and_then(|first| cells.get(first..first + 4)) {
            let numbers = cells.iter().map(|cell| cell.parse().unwrap());
            figures.push((is_of_one, numbers.collect::<Vec<f64>>().try_into().unwrap()));
        } else {
            (first, is_of_one) = (None, line.ends_with(", 1 CPU"));
        }
    }
    figures
}

#[test]
fn min_median_and_max_ascend_in_every_table() {
    for bench in ["pairs", "random", "replace", "cross", "orders", "zonelist", "pagelock", "slab"] {
        let text = stdout(&[bench]);
        let figures = figures(&text);
        let is_skipped = text.contains("skipped");
        assert!(is_skipped || figures.len() >= 4, "{text}");
        assert!(bench != "pairs" || figures.iter().any(|(is_of_one, _)| *is_of_one), "{text}");
        for (is_of_one, [median, min, max, p99]) in figures {
            assert!(min <= median && median <= max, "{bench}: {min} {median} {max}");
            // Of samples, the others of rounds: those of several threads also have the time in which one of them
            // had lost its CPU.
            assert!(
                p99 > 0.0 && (!is_of_one || p99 >= min / 2.0),
                "{bench}: {p99} of samples, {min} of rounds"
            );
        }
    }
}

#[test]
fn the_bulk_table_has_a_line_for_each_size_and_operation() {
    let text = stdout(&["bulk"]);
    for heading in ["cpu ", "memory ", "kernel ", "storage ", "nearpage ", "clock ", "rounds "] {
        assert!(text.lines().any(|line| line.starts_with(heading)), "{heading}: {text}");
    }
    for operation in ["alloc", "free", "total"] {
        for n in (0..=14).map(|shift| 1 << shift) {
            let start = format!("Amean    {operation}-odr0-{n} ");
            let lines = text.lines().filter(|line| line.starts_with(&start));
            assert_eq!(lines.count(), 1, "{start}: {text}");
        }
    }
    assert!(text.contains("( 58.92%)   ( 17.84%)\n"), "{text}");
    let counts = text.split_once("\ncounts: zone locks taken").unwrap().1;
    assert!(counts.contains("\n nearpage") && counts.contains(" bulk "), "{counts}");
}

#[test]
fn the_loop_of_2017_has_rows_of_its_own() {
    let document = json(&["bulk", "--loop", "2017", "--bytes", "128M"]);
    let expected = ["bulk_alloc", "bulk_free", "single_alloc_2017", "single_free_2017"];
    assert_eq!(distinct(&document, "bench"), BTreeSet::from(expected));
    assert_eq!(document["machine"]["bytes_per_node"], 128 << 20);
    assert!(stdout(&["bulk", "--loop=2017"]).contains("one at a time n+1 pages, divided by n"));
}

#[test]
fn benches_come_once_and_in_an_order_of_their_own() {
    let text = stdout(&["orders", "pairs", "orders"]);
    let at = |title: &str| text.match_indices(title).map(|(at, _)| at).collect::<Vec<_>>();
    let (pairs, orders) = (at("\npair: "), at("\norders: "));
    assert_eq!(pairs.len(), orders.len());
    assert!(pairs.last() < orders.first(), "{text}");
    assert!(!text.contains("Amean") && !text.contains("fill"), "{text}");
}

#[test]
fn the_zonelist_bench_has_rows_and_scans_of_each_rule() {
    let document = json(&["zonelist"]);
    assert_eq!(distinct(&document, "bench"), BTreeSet::from(["near", "far"]));
    let rules = BTreeSet::from(["off", "original", "keyed"]);
    assert_eq!(distinct(&document, "allocator"), rules);
    assert_eq!(document["rows"].as_array().unwrap().len(), 12);
    for scans in document["scans"].as_array().unwrap() {
        let count = |name: &str| scans[name].as_u64().unwrap();
        let (pages, visited) = (count("pages"), count("zones_visited"));
        match (scans["bench"].as_str().unwrap(), scans["allocator"].as_str().unwrap()) {
            ("near", _) => assert_eq!(visited, 0, "{scans}"),
            (_, "off") => assert_eq!(visited, pages * (count("n") - 1), "{scans}"),
            _ => assert!(visited < pages * 3 && count("zones_skipped") > pages, "{scans}"),
        }
    }
    let text = stdout(&["zonelist"]);
    assert!(
        text.contains("zonelist, far: ns and zones per allocation and free, 255 of 256"),
        "{text}"
    );
}

/// Each row is a run of its own; with one thread the counts are those of the seed.
#[test]
fn fragmentation_counts_ranges_under_each_rule() {
    let arguments = ["fragmentation", "--threads", "1", "--bytes", "64M", "--seed", "3"];
    let arguments = [&arguments[..], &["--model", "linux-6.18", "--model", "nearpage"]].concat();
    let counts = |arguments: &[&str]| {
        let mut command = bench(arguments);
        let (stdout, stderr) = texts(&command.arg("--json").output().unwrap());
        assert_eq!(stderr, "");
        let document: Value = serde_json::from_str(&stdout).unwrap();
        assert_eq!(document["rows"], serde_json::json!([]));
        document["fragmentation"].clone()
    };
    let rows = counts(&arguments);
    // nearpage's own rules look at the clock.
    let of_linux = |rows: &Value| {
        let rows = rows.as_array().unwrap().iter().filter(|row| row["model"] == "linux-6.18");
        rows.cloned().collect::<Vec<_>>()
    };
    assert_eq!(of_linux(&counts(&arguments)), of_linux(&rows));
    let seen: Vec<_> = rows
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            let count = |name: &str| row[name].as_u64().unwrap();
            assert_eq!((count("threads"), count("cpus"), count("seed")), (1, 1, 3));
            assert_eq!((count("bytes"), count("ranges")), (64 << 20, 32));
            let requests = row["order9_requests"].as_u64();
            assert_eq!(requests.is_some(), count("fifths_rounds") == 60, "{row}");
            assert!(count("whole") <= count("perfect") && requests <= Some(32), "{row}");
            assert!(count("pages_moved") > 1000, "{row}");
            let model = row["model"].as_str().unwrap();
            (model, count("used_percent"), count("fifths_rounds"), count("perfect"))
        })
        .collect();
    let expected = ["nearpage", "linux-6.18"].map(|model| {
        let half = [0, 1, 5, 20, 60].map(|fifths| (model, 50, fifths, 16));
        [&half[..], &[(model, 10, 60, 28)]].concat()
    });
    assert_eq!(seen, expected.concat());
    let text = |arguments: &[&str]| texts(&bench(arguments).output().unwrap()).0;
    let threads = std::thread::available_parallelism().unwrap().get() + 1;
    let bytes = format!("{}M", 16 * (threads + 1));
    let shared = text(&["fragmentation", "--threads", &threads.to_string(), "--bytes", &bytes]);
    let cells = format!("\n nearpage  {threads} on {} CPU", threads - 1);
    assert!(shared.contains(&cells), "{shared}");
    assert!(shared.contains("\nthreads that share a CPU have a pageset each"), "{shared}");
    assert!(!text(&arguments).contains("share a CPU"));
}

#[test]
fn a_first_request_of_order_9_has_rows_of_each_rule_and_size() {
    let document = json(&["order9", "--model", "linux-6.18", "--bytes", "64M"]);
    let cpus = document["machine"]["cpus"].as_u64().unwrap();
    let stall = (cpus > 1).then_some("order9_stall");
    let works = ["order9_first"].into_iter().chain(stall);
    assert_eq!(distinct(&document, "bench"), works.collect());
    assert_eq!(distinct(&document, "allocator"), BTreeSet::from(["nearpage", "linux-6.18"]));
    for row in document["rows"].as_array().unwrap() {
        assert_eq!((row["n"].as_u64(), &row["ns_p99"]), (Some(16_384), &Value::Null), "{row}");
    }
    let text = stdout(&["order9", "--bytes", "64M"]);
    assert!(
        text.contains("\norder9_first: us of the first request after random frees, "),
        "{text}"
    );
}

#[test]
fn tails_ascend() {
    let document = json(&["tails", "--model", "linux-6.12"]);
    let rows = document["rows"].as_array().unwrap();
    for row in rows {
        let ns = |name: &str| row[name].as_f64().unwrap();
        assert!(ns("ns_p99") <= ns("ns_p999") && ns("ns_p999") <= ns("ns_p9999"), "{row}");
    }
    if document["machine"]["cpus"].as_u64() > Some(1) {
        assert_eq!(distinct(&document, "bench"), BTreeSet::from(TAILS));
        assert!(distinct(&document, "allocator").contains("linux-6.12"));
    }
}

/// Each of four kinds of calls, and by which clock they were timed.
#[test]
fn mixed_orders_are_timed_call_by_call() {
    let document = json(&["mixed", "--bytes", "256M", "--model", "linux-6.18"]);
    if document["machine"]["cpus"].as_u64() < Some(2) {
        return;
    }
    let clock = document["call_clock"].as_str().unwrap();
    assert!(["rdtscp", "clock"].contains(&clock), "{clock}");
    let works = TAILS.map(|work| format!("mixed_{work}"));
    assert_eq!(distinct(&document, "bench"), works.iter().map(String::as_str).collect());
    assert!(
        distinct(&document, "allocator").is_superset(&BTreeSet::from(["nearpage", "linux-6.18"]))
    );
    for row in document["rows"].as_array().unwrap() {
        let ns = |name: &str| row[name].as_f64().unwrap();
        assert!(ns("ns_p50") <= ns("ns_p99") && ns("ns_p99") <= ns("ns_p999"), "{row}");
        assert!(row["pages_moved"].as_u64().unwrap() > 20_000, "{row}");
    }
    let text = stdout(&["mixed", "--bytes", "256M"]);
    let title = format!("\nmixed_order9_free: ns per call by {clock}, four fifths full, 2 CPUs\n");
    assert!(text.contains(&title), "{text}");
}

#[test]
fn a_page_replaced_at_random_has_rows_and_counts() {
    let document = json(&["replace"]);
    assert_eq!(distinct(&document, "bench"), BTreeSet::from(["replace"]));
    let rows = document["rows"].as_array().unwrap();
    let cpus = document["machine"]["cpus"].as_u64().unwrap();
    for threads in [1, cpus] {
        let is_it = |row: &&Value| row["threads"] == threads && row["allocator"] == "nearpage";
        let row = rows.iter().find(is_it).unwrap();
        // One round counts: each page that is held is freed once, and another one taken.
        assert_eq!(row["pages_moved"].as_u64(), row["n"].as_u64().map(|n| 2 * n), "{row}");
        assert_eq!(row["zone_locks_per_1000_pages"], 0.0, "{row}");
        assert!(row["shared_writes_per_1000_pages"].as_f64() <= Some(10.0), "{row}");
    }
    assert!(
        stdout(&["replace"])
            .contains("\nreplace: ns per free and allocation, 20000 pages, 1 CPU\n")
    );
}

#[test]
fn other_rules_stand_beside_nearpage() {
    let document = json(&["orders", "pairs", "--model", "linux-6.18"]);
    for work in ["pair", "order4_pair", "order9_pair"] {
        let is_it = |row: &&Value| row["bench"] == work && row["allocator"] == "linux-6.18";
        assert!(document["rows"].as_array().unwrap().iter().any(|row| is_it(&row)), "{work}");
    }
}

#[test]
fn page_locks_are_measured_under_all_rules() {
    let document = json(&["pagelock"]);
    let locks = ["nearpage", "nearpage-global", "nearpage-per-zone", "nearpage-no-waiters-bit"];
    let expected = BTreeSet::from_iter(locks.into_iter().chain(["std"]));
    assert_eq!(distinct(&document, "allocator"), expected);
    assert!(stdout(&["pagelock"]).contains("\nlock_pair: ns per lock and unlock, 1 CPU\n"));
}

/// Without restartable sequences nearpage itself is the locked variant.
#[test]
fn what_does_not_take_part_is_told() {
    let output = quick(&["pairs"]).env("NEARPAGE_RSEQ", "off").output().unwrap();
    let (stdout, _) = texts(&output);
    let lines = stdout.lines().filter(|line| line.starts_with("absent   nearpage-locked: "));
    assert_eq!(lines.count(), 1, "{stdout}");
}

#[test]
fn one_cpu_skips_cross() {
    let mut command = quick(&["cross"]);
    let pin = || {
        // SAFETY: an empty set is made of zeroes, sched_getcpu reads, and the set that the call reads lies
        // in this frame.
        let answer = unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(libc::sched_getcpu() as usize, &mut set);
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set)
        };
        if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    // SAFETY: between fork and exec the closure makes two system calls and allocates nothing.
    let output = unsafe { command.pre_exec(pin) }.output().unwrap();
    let (stdout, stderr) = texts(&output);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(stdout.contains("\ncross: skipped, it takes two CPUs"), "{stdout}");
    assert!(!stdout.contains("glibc"), "{stdout}");
}

#[test]
fn wrong_usage() {
    let unknown = refusal(&["pears"]);
    assert!(unknown.contains("'pears'"), "{unknown}");
    assert!(
        unknown.contains(
            "bulk, pairs, random, replace, cross, orders, tails, mixed, fragmentation, order9, zonelist, pagelock, slab"
        ),
        "{unknown}"
    );
    let unknown = refusal(&["pairs", "--model", "linux-2.6"]);
    assert!(
        unknown.contains("\"linux-2.6\" is no model, expected one of:\n  nearpage"),
        "{unknown}"
    );
    let owned = refusal(&["pairs", "--model", "rfc-2026-owned"]);
    assert!(
        owned.starts_with("nearpage: --model rfc-2026-owned: its CPUs own pageblocks"),
        "{owned}"
    );
    assert!(refusal(&["--loop", "2018"]).contains("[possible values: exact, 2017]"));
    assert!(refusal(&["--rounds", "0"]).contains("0 is not in 1..=1000"));
    assert!(refusal(&["--bytes", "2X"]).contains("a size such as 0, 512M, 2G or 1T"));
}

/// An option that nothing of what is measured looks at is refused.
#[test]
fn options_of_other_benches() {
    for arguments in [["pairs", "--loop", "2017"], ["pairs", "--loop", "exact"]] {
        let expected = format!("nearpage: --loop {}: it belongs to bulk", arguments[2]);
        let message = refusal(&arguments);
        assert!(message.starts_with(&expected), "{message}");
    }
    let message = refusal(&["zonelist", "--bytes", "1G"]);
    assert!(
        message.starts_with("nearpage: --bytes 1 GiB: it belongs to all but zonelist"),
        "{message}"
    );
    for (arguments, expected) in [
        (["pairs", "--threads", "3"], "--threads 3: it belongs to fragmentation, "),
        (["order9", "--seed", "3"], "--seed 3: it belongs to fragmentation, "),
        (["fragmentation", "--rounds", "3"], "--rounds 3: it belongs to all but fragmentation, "),
        (
            ["slab", "--model", "linux-6.18"],
            "--model linux-6.18: it belongs to pairs, random, replace, cross, ",
        ),
    ] {
        let message = refusal(&arguments);
        assert!(message.starts_with(&format!("nearpage: {expected}")), "{message}");
    }
    stdout(&["pairs", "bulk", "--loop", "2017"]);
    stdout(&["zonelist", "pagelock", "--bytes", "64M"]);
    assert!(json(&["--loop", "2017"]).to_string().contains("single_alloc_2017"));
}

/// The size that a refusal names fits, also with tables, which are printed while memories are made.
#[test]
fn a_limit_of_addresses() {
    let within = |arguments: &[&str], bytes: u64| {
        let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
        // SAFETY: the call reads the limits, which the closure holds.
        let set = move || match unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        };
        let mut command = quick(arguments);
        // SAFETY: between fork and exec the closure makes a system call and allocates nothing.
        let output = unsafe { command.pre_exec(set) }.output().unwrap();
        let (stdout, stderr) = texts(&output);
        (output.status.code(), stdout, stderr)
    };
    for bench in ["pairs", "slab"] {
        let (code, stdout, stderr) = within(&[bench], 4 << 30);
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{stderr}");
        let start = format!("nearpage: --bytes 2 GiB: {bench} reserves ");
        assert!(stderr.starts_with(&start), "{stderr}");
        assert!(stderr.contains(" memories of this size at once, "), "{stderr}");
        assert!(stderr.contains("`ulimit -v` allows 4 GiB, expected "), "{stderr}");
        let size = stderr.rsplit_once("expected ").unwrap().1.strip_suffix(" or less\n").unwrap();
        let (code, _, stderr) = within(&[bench, "--bytes", size], 4 << 30);
        assert_eq!((code, stderr.as_str()), (Some(0), ""), "--bytes {size}");
    }
    // Its nodes are as many and as large whatever is said.
    let (code, stdout, stderr) = within(&["pairs", "zonelist"], 4 << 30);
    let expected = "nearpage: zonelist: its memories reserve 213 GiB of addresses, whatever --bytes is, and `ulimit -v` \
         allows 4 GiB, expected `ulimit -v unlimited`, or the other benchmarks alone\n";
    assert_eq!((code, stdout.as_str(), stderr.as_str()), (Some(2), "", expected));
}

#[test]
fn memory_of_impossible_sizes() {
    assert_eq!(
        refusal(&["pairs", "--bytes", "12M"]),
        "nearpage: --bytes 12 MiB: pairs holds 4096 pages at once, expected 36 MiB or more\n"
    );
    assert_eq!(
        refusal(&["random", "bulk", "--bytes", "0"]),
        "nearpage: --bytes 0 B: bulk holds 16385 pages at once, expected 97 MiB or more\n"
    );
    assert_eq!(
        refusal(&["fragmentation", "--bytes", "64M", "--threads", "9"]),
        "nearpage: --bytes 64 MiB: fragmentation holds 18432 pages at once, expected 106 MiB or more\n"
    );
    for (asked, told) in [("16T", "16 TiB"), ("64T", "64 TiB"), ("1000000T", "1000000 TiB")] {
        let expected = format!(
            "nearpage: --bytes {told}: a node has at most 2^32 - 1 frames of 4 KiB, expected 16383G or less\n"
        );
        assert_eq!(refusal(&["zonelist", "--bytes", asked]), expected);
    }
}
