//! `nearpage export` as a user runs it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use super::tidy::root;

const MACHINE: &str = "bundles/q612-n2-mixed.tar.zst";

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nearpage"));
    command.current_dir(root()).arg("export").args(arguments);
    command
}

/// The rules of OpenMetrics that a scraper relies on: each family is declared before its samples, once, and whole; no
/// series occurs twice; counters end in `_total`; the end is marked. Returns the values by series.
fn checked(text: &str, is_openmetrics: bool) -> BTreeMap<String, f64> {
    let (mut declared, mut series) = (BTreeSet::new(), BTreeMap::new());
    let mut family = (String::new(), String::new());
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(declared.insert(name.to_owned()), "{name} is declared twice");
            let kinds: &[&str] = if is_openmetrics {
                &["gauge", "counter", "unknown"]
            } else {
                &["gauge", "counter", "untyped"]
            };
            assert!(kinds.contains(&kind), "{line}");
            family = (name.into(), kind.into());
        } else if line.starts_with("# HELP ") || line == "# EOF" {
        } else {
            let (name, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
            let bare = name.split('{').next().unwrap();
            let expected = match (family.1.as_str(), is_openmetrics) {
                ("counter", true) => format!("{}_total", family.0),
                _ => family.0.clone(),
            };
            assert_eq!(bare, expected, "{line}");
            let value: f64 = value.parse().unwrap_or_else(|_| panic!("{line}"));
            assert!(series.insert(name.to_owned(), value).is_none(), "{name} occurs twice");
        }
    }
    assert_eq!(text.ends_with("\n# EOF\n"), is_openmetrics);
    assert_eq!(text.matches("# EOF").count(), usize::from(is_openmetrics));
    series
}

struct Serving(Child, String);

impl Serving {
    fn start(arguments: &[&str]) -> Serving {
        let listen = ["--listen", "127.0.0.1:0"];
        let mut child = command(arguments).args(listen).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.split("http://").nth(1).unwrap().split('/').next().unwrap();
        Serving(child, address.to_owned())
    }

    fn scrape(&self) -> String {
        let mut stream = TcpStream::connect(&self.1).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split_once("\r\n\r\n").unwrap().1.to_owned()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_recorded_machine_is_served_as_openmetrics() {
    let serving = Serving::start(&["--sysroot", MACHINE]);
    let series = checked(&serving.scrape(), true);
    let free =
        series.keys().filter(|name| name.starts_with("node_zoneinfo_nr_free_pages{")).count();
    assert!(free >= 3, "{series:?}");
    assert!(
        series.contains_key("node_zoneinfo_min_pages{node=\"1\",zone=\"DMA32\"}"),
        "{:?}",
        series.keys()
    );
    // Orders 0 to 10 of each zone, and nothing by CPU.
    let blocks = series.keys().filter(|name| name.starts_with("node_buddyinfo_blocks{")).count();
    assert_eq!(blocks, 11 * free);
    assert!(!series.keys().any(|name| name.contains("cpu=")));
    assert!(series.len() < 60 * free + 100, "{} series", series.len());
}

#[test]
fn this_machine_and_each_cpu() {
    let serving = Serving::start(&["--per-cpu"]);
    let series = checked(&serving.scrape(), true);
    assert!(
        series
            .keys()
            .any(|name| name.starts_with("nearpage_pageset_high_pages{")
                && name.contains("cpu=\"0\""))
    );
    assert!(series["node_memory_numa_MemTotal{node=\"0\"}"] > 1e8);
    // Memory does not grow with scrapes.
    let resident = || {
        let status = fs::read_to_string(format!("/proc/{}/status", serving.0.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
    };
    (0..50).for_each(|_| _ = serving.scrape());
    let before = resident();
    let scrapes = std::env::var("NEARPAGE_SCRAPES")
        .ok()
        .and_then(|number| number.parse().ok())
        .unwrap_or(500);
    (0..scrapes).for_each(|_| _ = serving.scrape());
    assert!(resident() < before + 512, "{before} KiB, then {} KiB", resident());
}

#[test]
fn a_textfile_is_written_at_once_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nearpage.prom");
    let output =
        command(&["--sysroot", MACHINE, "--textfile", path.to_str().unwrap()]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = fs::read_to_string(&path).unwrap();
    let series = checked(&text, false);
    assert!(series.contains_key("nearpage_zone_gives{node=\"0\",zone=\"DMA32\",order=\"0\"}"));
    let refused =
        command(&["--textfile", folder.path().join("x.txt").to_str().unwrap()]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let refused = command(&["--listen", &address]).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains(&address));
}

/// Figures have no password: an address that others may reach is told of.
#[test]
fn who_listens_beyond_this_machine_is_warned() {
    for (address, is_warned) in [("0.0.0.0:0", true), ("127.0.0.1:0", false)] {
        let arguments = ["--sysroot", MACHINE, "--listen", address];
        let mut child = command(&arguments).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(line.contains("warning: whoever reaches 0.0.0.0:"), is_warned, "{line}");
    }
}
