//! No option without an effect: each option of each command is given two values, and what comes out differs.
//!
//! `options.txt` has a line for each option: two command lines and what is expected of them. An option that `--help` lists and the table
//! lacks is a failure, and so is a line of an option that there is not.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use nearpage_machine::tunable::Tunable;
use serde_json::Value;

use super::tidy::root;
use super::unpacked_bundle;

/// Each line: COMMAND --option | one | other | what is expected. Variables of a shell begin with $.
const TABLE: &str = include_str!("options.txt");

/// A line of the table.
struct Case<'a> {
    option: &'a str,
    one: &'a str,
    other: &'a str,
    expected: Expected<'a>,
}

enum Expected<'a> {
    /// What comes out differs, and the first one comes to the same twice.
    Differs,
    /// What is live or timed always differs: only the other one has these words.
    Has(&'a str),
    /// The other one is refused with these words, or says with them that it does nothing.
    Says(&'a str),
    /// The same by promise.
    Same,
    /// It needs what the test `MODULE::NAME` makes; that test gives it.
    In(&'a str),
}

fn cases() -> Vec<Case<'static>> {
    let lines = TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let case = |line: &'static str| {
        let parts: Vec<&str> = line.split('|').map(str::trim).collect();
        let [option, one, other, expected] = parts[..] else { panic!("{line}") };
        let expected = match expected.split_once(' ').unwrap_or((expected, "")) {
            ("differs", "") => Expected::Differs,
            ("same", "") => Expected::Same,
            ("has", words) => Expected::Has(words),
            ("says", words) => Expected::Says(words),
            ("in", test) => Expected::In(test),
            _ => panic!("{line}"),
        };
        Case { option, one, other, expected }
    };
    lines.map(case).collect()
}

/// The words of a command line; those with spaces are in single quotes.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (at, part) in line.split('\'').enumerate() {
        match at % 2 {
            0 => words.extend(part.split_whitespace().map(str::to_owned)),
            _ => words.push(part.to_owned()),
        }
    }
    words
}

/// What the command lines are about.
struct Inputs {
    variables: BTreeMap<&'static str, String>,
    _folder: tempfile::TempDir,
}

impl Inputs {
    /// A short bundle: the first events of one that comes along.
    fn new() -> Inputs {
        let folder = tempfile::tempdir().unwrap();
        let bundle = unpacked_bundle(folder.path());
        let trace = bundle.join("trace.txt");
        let text = fs::read_to_string(&trace).unwrap();
        let cut = |events: usize| -> String {
            let rest = text.lines().skip(events);
            let marks = rest.filter(|line| {
                line.contains("nearpage: cmd end") || line.contains("nearpage: after")
            });
            text.lines().take(events).chain(marks).flat_map(|line| [line, "\n"]).collect()
        };
        fs::write(&trace, cut(20_000)).unwrap();
        let shorter = folder.path().join("shorter.txt");
        fs::write(&shorter, cut(10_000)).unwrap();
        let variables = [
            ("$BUNDLE", bundle.to_str().unwrap().to_owned()),
            ("$TRACE", shorter.to_str().unwrap().to_owned()),
            ("$PACKED", "bundles/q612-n2-mixed.tar.zst".to_owned()),
            ("$MACHINE", "docs/src/examples/two-sockets.numactl".to_owned()),
            ("$LOG", "crates/nearpage-explain/tests/reports/6.1/frag-order4-kernel.log".to_owned()),
        ];
        Inputs { variables: variables.into(), _folder: folder }
    }

    /// Runs a command line: exit code, what it prints, and the files that it leaves in $OUT.
    fn run(&self, line: &str) -> String {
        let out = tempfile::tempdir().unwrap();
        let path = out.path().to_str().unwrap();
        let filled = |word: String| {
            let word = word.replace("$OUT", path);
            self.variables.iter().fold(word, |word, (name, value)| word.replace(name, value))
        };
        let output = Command::new(env!("CARGO_BIN_EXE_nearpage"))
            .args(words(line).into_iter().map(filled))
            .current_dir(root())
            .env_remove("NEARPAGE_NUMA")
            .env_remove("NO_COLOR")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let mut all = format!("exit {:?}\n", output.status.code());
        all += &String::from_utf8_lossy(&output.stdout);
        all += &String::from_utf8_lossy(&output.stderr);
        add_files(out.path(), &mut all);
        all.replace(path, "$OUT")
    }
}

fn add_files(folder: &Path, all: &mut String) {
    let mut paths: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            add_files(&path, all);
        } else {
            let content = fs::read(&path).unwrap();
            let _ = write!(all, "\n{}: {}", path.display(), String::from_utf8_lossy(&content));
        }
    }
}

/// What command lines came to: many stand in several lines of the table, and run once, or twice where they must repeat.
struct Ran<'a> {
    inputs: &'a Inputs,
    lines: Mutex<BTreeMap<&'a str, Arc<[OnceLock<String>; 2]>>>,
}

impl<'a> Ran<'a> {
    fn new(inputs: &'a Inputs) -> Ran<'a> {
        Ran { inputs, lines: Mutex::default() }
    }

    /// What a line came to the first time.
    fn first(&self, line: &'a str) -> String {
        self.time(line, 0)
    }

    /// Whether it comes to the same once more.
    fn repeats(&self, line: &'a str) -> bool {
        self.time(line, 0) == self.time(line, 1)
    }

    fn time(&self, line: &'a str, time: usize) -> String {
        let times = {
            let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(lines.entry(line).or_default())
        };
        times[time].get_or_init(|| self.inputs.run(line)).clone()
    }
}

/// Why a line does not come to what it says.
fn problem<'a>(ran: &Ran<'a>, case: &Case<'a>) -> Option<String> {
    let Case { one, other, .. } = case;
    let end = |text: &str| text.chars().take(700).collect::<String>();
    let refused =
        |text: &str| text.starts_with("exit Some(2)").then(|| format!("refused: {}", end(text)));
    if let Expected::In(test) = case.expected {
        return in_test(case.option, test);
    }
    let (first, second) = (ran.first(one), ran.first(other));
    match case.expected {
        Expected::Differs if first == second => Some(format!("no difference: {}", end(&first))),
        Expected::Differs => refused(&first)
            .or_else(|| refused(&second))
            .or_else(|| (!ran.repeats(one)).then(|| "it differs from itself".into())),
        Expected::Same => refused(&first)
            .or_else(|| (first != second).then(|| format!("a difference: {}", end(&second)))),
        Expected::Has(words) => refused(&second).or_else(|| {
            let is_told = second.contains(words) && !first.contains(words);
            (!is_told).then(|| format!("{words:?} in both or in none: {}", end(&second)))
        }),
        Expected::Says(words) => {
            let is_said = second.contains(words) && !first.contains(words);
            (!is_said).then(|| format!("{words:?} is not said: {}", end(&second)))
        }
        Expected::In(_) => None,
    }
}

/// Whether a test of this folder gives an option.
fn in_test(option: &str, test: &str) -> Option<String> {
    let (module, name) = test.split_once("::")?;
    let path = root().join(format!("crates/nearpage-cli/tests/cli/{module}.rs"));
    let text = fs::read_to_string(path).unwrap_or_default();
    let body = text.split_once(&format!("fn {name}()")).map(|(_, rest)| rest);
    let body = body.and_then(|rest| rest.split_once("\n}\n")).map_or("", |(body, _)| body);
    let long = option.rsplit(' ').next().unwrap();
    let shorts = [
        ("--output", "\"-o\""),
        ("--delay", "\"-d\""),
        ("--count", "\"-n\""),
        ("--every", "\"-e\""),
    ];
    let short = shorts.iter().find(|(name, _)| *name == long);
    let is_given = body.contains(long) || short.is_some_and(|(_, short)| body.contains(short));
    (!is_given).then(|| format!("{test} does not give it"))
}

/// All commands with their options, as `--help` lists them: `COMMAND --option`.
fn listed(inputs: &Inputs, command: &str, all: &mut BTreeSet<String>) {
    let help = inputs.run(&format!("{command} -h"));
    let mut is_command = false;
    for line in help.lines() {
        if !line.starts_with(' ') {
            // The program's own commands stand in groups.
            let is_group = command.is_empty() && line.ends_with(':') && line != "Options:";
            is_command = line == "Commands:" || is_group;
            continue;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let option = words.iter().take(2).find(|word| word.starts_with("--"));
        let depth = line.len() - line.trim_start().len();
        if is_command && depth == 2 && words[0] != "help" {
            listed(inputs, &format!("{command} {}", words[0]), all);
        } else if depth <= 6
            && let Some(option) = option
            && line.trim_start().starts_with('-')
        {
            let option = option.trim_end_matches(',');
            let is_shared = ["--help", "--version"].contains(&option)
                || (!command.is_empty() && ["--quiet", "--color"].contains(&option));
            if !is_shared {
                all.insert(format!("{command} {option}").trim().to_owned());
            }
        }
    }
}

#[test]
fn every_option_has_an_effect() {
    let inputs = Inputs::new();
    let cases = cases();
    let mut options = BTreeSet::new();
    listed(&inputs, "", &mut options);
    assert!(options.len() > 120, "{options:?}");
    let told: BTreeSet<String> = cases.iter().map(|case| case.option.to_owned()).collect();
    let missing: Vec<_> = options.symmetric_difference(&told).collect();
    assert!(missing.is_empty(), "in options.txt or in --help alone: {missing:?}");
    let ran = Ran::new(&inputs);
    let problems = on_all_cpus(&cases, |case| {
        let problem = problem(&ran, case)?;
        Some(format!("{}: {} | {}\n    {problem}", case.option, case.one, case.other))
    });
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    println!("{} options in {} lines", options.len(), cases.len());
}

/// What a check finds, of all cases.
fn on_all_cpus<T: Sync>(cases: &[T], check: impl Fn(&T) -> Option<String> + Sync) -> Vec<String> {
    let (next, found) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            found.lock().unwrap_or_else(PoisonError::into_inner).extend(check(case));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    found.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// The harness can fail.
#[test]
fn a_line_that_is_wrong_is_found() {
    let inputs = Inputs::new();
    let ran = Ran::new(&inputs);
    let topo = "topo --numa 1G,cpus=0";
    let check =
        |one, other, expected| problem(&ran, &Case { option: "topo --x", one, other, expected });
    assert!(check(topo, topo, Expected::Differs).unwrap().contains("no difference"));
    assert!(check(topo, "topo --numa x", Expected::Differs).unwrap().contains("refused"));
    assert!(check("doctor --json", topo, Expected::Same).is_some());
    assert!(check(topo, topo, Expected::Has("Nodes")).unwrap().contains("in both"));
    assert!(check(topo, topo, Expected::Says("no effect")).unwrap().contains("is not said"));
    assert!(check(topo, topo, Expected::In("top::wrong_usage_is_refused")).is_some());
    assert!(check(topo, "topo --numa 2G,cpus=0", Expected::Differs).is_none());
}

/// Kinds of machines.
const MACHINES: [(&str, &str); 7] = [
    ("numactl's text", "docs/src/examples/two-sockets.numactl"),
    ("the short form in a file", "docs/src/examples/memoryless.machine"),
    ("the short form", "--numa 3G,cpus=0-3 --numa 3G,cpus=4-7"),
    ("a copy of /sys", "crates/nearpage-cli/tests/data/linux-6.1-movable"),
    ("a copy of /sys with /proc/sys", "docs/src/examples/slow-box"),
    ("hwloc's XML", "$XML"),
    ("a name", "memoryless-8n2m"),
];

/// Each setting with two values, and whether figures of the short load differ, or only sizes.
const SETTINGS: [(&str, [&str; 2], bool); 13] = [
    ("vm.min_free_kbytes", ["20000", "40000"], false),
    ("vm.watermark_scale_factor", ["20", "300"], false),
    ("vm.watermark_boost_factor", ["0", "30000"], false),
    ("vm.lowmem_reserve_ratio", ["64 64 64", "256 32 16"], false),
    ("vm.percpu_pagelist_high_fraction", ["8", "100000"], true),
    ("pcp.batch_scale_max", ["0", "3"], true),
    ("pcp.batch", ["7", "31"], true),
    ("pcp.high_min", ["70", "7000"], true),
    ("pcp.high_max", ["70", "700"], true),
    ("pcp.tunes_high", ["on", "off"], true),
    ("pcp.below_high", ["on", "off"], false),
    ("pcp.free_high", ["on", "off"], false),
    ("zone.instances", ["1", "2"], false),
];

/// Every setting acts on every kind of machine, or says why it cannot. Values alone are no effect: figures or sizes differ.
#[test]
fn every_setting_acts_on_every_kind_of_machine() {
    let mut inputs = Inputs::new();
    let keys: BTreeSet<&str> = SETTINGS.iter().map(|(key, ..)| *key).collect();
    let known: BTreeSet<&str> = Tunable::keys().map(|key| key.name).collect();
    assert_eq!(keys, known);
    let xml = inputs.run("topo --topology docs/src/examples/two-sockets.numactl --format hwloc");
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), xml.split_once('\n').unwrap().1).unwrap();
    inputs.variables.insert("$XML", file.path().to_str().unwrap().to_owned());
    let machines = MACHINES.iter().map(|(kind, machine)| (*kind, format!("--machine '{machine}'")));
    let machines: Vec<(&str, String)> =
        machines.chain([("the recorded machine", String::new())]).collect();
    let cases: Vec<_> =
        machines.iter().flat_map(|of| SETTINGS.iter().map(move |set| (of, set))).collect();
    let problems = on_all_cpus(&cases, |((kind, machine), (key, values, has_figures))| {
        let [one, other] = values.map(|value| {
            let asked =
                format!("whatif $BUNDLE {machine} --change '{key}={value}' --starts 0 --json");
            let text = inputs.run(&asked);
            let document = text.split_once('\n').map(|(_, document)| document);
            let document: Option<Value> = document.and_then(|of| serde_json::from_str(of).ok());
            document.unwrap_or_else(|| panic!("{asked}: {text}"))["then"][0].take()
        });
        let idle = &other["changes"]["settings"][0]["no_effect"];
        let differs = one["totals"] != other["totals"]
            || (!has_figures && one["changes"]["sizes"] != other["changes"]["sizes"]);
        let is_told =
            idle.is_string() || [&one, &other].iter().all(|then| then["no_difference"].is_string());
        let problem = (!differs && !is_told)
            .then(|| format!("{key} on {kind}: {values:?} come to the same, and nothing says why"));
        problem.or_else(|| {
            let told = other["changes"]["settings"][0]["after"].as_str().unwrap_or_default();
            (told.is_empty()).then(|| format!("{key} on {kind}: its value is not told"))
        })
    });
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    println!("{} settings on {} kinds of machines", SETTINGS.len(), machines.len());
}

/// `topo` has sizes: those of the kernel's settings move on every kind of machine, or it says why not.
#[test]
fn every_setting_of_the_kernel_moves_sizes() {
    let inputs = Inputs::new();
    let machines = MACHINES.iter().filter(|(_, machine)| !machine.starts_with(['$', '-']));
    let mut machines: Vec<String> =
        machines.map(|(_, machine)| format!("--topology {machine}")).collect();
    machines
        .extend(["--numa 3G,cpus=0-3 --numa 3G,cpus=4-7", "--bundle $BUNDLE"].map(str::to_owned));
    let of_kernel = |key: &str| key.starts_with("vm.");
    let cases: Vec<_> = machines
        .iter()
        .flat_map(|machine| {
            SETTINGS.iter().filter(|(key, ..)| of_kernel(key)).map(move |set| (machine, set))
        })
        .collect();
    let problems = on_all_cpus(&cases, |(machine, (key, values, _))| {
        let [one, other] = values.map(|value| {
            inputs.run(&format!("topo {machine} --format zoneinfo --set '{key}={value}'"))
        });
        let is_told = other.contains(&format!("{key} has no effect"));
        (one == other && !is_told || !one.starts_with("exit Some(0)")).then(|| {
            format!("topo {machine} --set {key}: {}", one.chars().take(300).collect::<String>())
        })
    });
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
