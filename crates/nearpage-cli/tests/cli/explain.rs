//! `nearpage explain` as a user runs it.

use std::fs;
use std::process::Output;

use assert_cmd::Command;
use serde_json::Value;

use super::tidy::root;

const LOG: &str = "crates/nearpage-explain/tests/reports/6.1/frag-order4-kernel.log";

fn explain(arguments: &[&str], input: &str) -> Output {
    let mut command = Command::cargo_bin("nearpage").unwrap();
    command.current_dir(root()).arg("explain").args(arguments).write_stdin(input).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn a_file_and_standard_input_are_the_same() {
    let file = explain(&[LOG], "");
    assert_eq!(file.status.code(), Some(0));
    let log = fs::read_to_string(root().join(LOG)).unwrap();
    for arguments in [&["-"][..], &[]] {
        assert_eq!(text(&explain(arguments, &log).stdout), text(&file.stdout));
    }
    // Those that are alike are counted.
    let twice = explain(&["-"], &format!("{log}{log}"));
    assert!(text(&twice.stdout).contains(": 1 more, the last at line "), "{}", text(&twice.stdout));
}

#[test]
fn reports_that_differ_in_policy_or_mark_are_shown() {
    let log = fs::read_to_string(root().join(LOG)).unwrap();
    let head = log.lines().find(|line| line.contains("nodemask=")).unwrap();
    let (before, after) = head.split_once("nodemask=").unwrap();
    let rest = after.split_once(',').unwrap().1;
    let of_policy = log.replace(head, &format!("{before}nodemask=0,{rest}"));
    let both = text(&explain(&["-"], &format!("{log}{of_policy}")).stdout).to_owned();
    assert!(!both.contains("more, the last at line"), "{both}");
    assert!(both.contains("2 reports in"), "{both}");
}

#[test]
fn json_is_one_document_whatever_happens() {
    let document = |output: &Output| serde_json::from_slice::<Value>(&output.stdout).unwrap();
    let output = explain(&["--json", LOG], "");
    let found = document(&output);
    assert_eq!(found["reports"][0]["verdict"]["rule"], "no_block");
    assert_eq!(found["error"], Value::Null);
    let empty = document(&explain(&["--json"], "nothing\nof note\n"));
    assert_eq!((empty["reports"].as_array().unwrap().len(), &empty["lines"]), (0, &Value::from(2)));
    let binary = explain(&["--json"], "a\0\u{1}\u{2}");
    assert_eq!(binary.status.code(), Some(2));
    assert!(document(&binary)["error"].as_str().unwrap().starts_with("line 1: "));
    let folder = explain(&["--json", "docs"], "");
    assert_eq!(
        (folder.status.code(), text(&folder.stderr)),
        (
            Some(2),
            "nearpage: cannot read docs: no log in it, expected a sosreport, or files such as dmesg, messages, kern.log or \
             console\n"
        )
    );
    let missing = explain(&["--json", "/nowhere"], "");
    assert_eq!(missing.status.code(), Some(2));
    assert_eq!(document(&missing)["error"]["exit_code"], 2);
}

/// A sosreport's folder and its archive: reports of its logs once, with what numactl's text says of nodes that they hide.
#[test]
fn a_sosreport_is_explained_as_a_whole() {
    let log = fs::read_to_string(root().join(LOG)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let sos = folder.path().join("sosreport-box");
    let write = |path: &str, text: &str| {
        let path = sos.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("sos_commands/kernel/dmesg", &log);
    write("var/log/messages", &log);
    let numactl =
        "available: 1 nodes (7)\nnode 7 cpus: 9\nnode 7 size: 2048 MB\nnode 7 free: 1024 MB\n";
    write("sos_commands/numa/numactl_--hardware", numactl);
    write("sos_commands/kernel/sysctl_-a", "vm.min_free_kbytes = 67584\n");
    let archive = folder.path().join("sos.tar");
    let mut builder = tar::Builder::new(fs::File::create(&archive).unwrap());
    builder.append_dir_all("sosreport-box", &sos).unwrap();
    builder.finish().unwrap();
    for input in [&sos, &archive] {
        let output = explain(&["--json", input.to_str().unwrap()], "");
        let found: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        assert_eq!(found["reports"].as_array().unwrap().len(), 1, "{found}");
        assert_eq!(found["seen_again"], 1);
        let beside = found["reports"][0]["beside"].to_string();
        assert!(
            beside.contains("node 7, which the report does not show, has 2 GiB, 1 GiB"),
            "{beside}"
        );
        assert!(beside.contains("vm.min_free_kbytes = 67584"), "{beside}");
    }
    // One paste may have all of it, and several files are one ticket.
    let paste = explain(&[], &format!("{numactl}\n{log}"));
    assert!(text(&paste.stdout).contains("node 7, which the report does not show"));
    let two =
        explain(&[LOG, sos.join("sos_commands/numa/numactl_--hardware").to_str().unwrap()], "");
    assert!(text(&two.stdout).contains("node 7, which the report does not show"));
}

#[test]
fn a_page_is_written_and_replaces_no_log() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("why.html");
    let output = explain(&[LOG, "--report", page.to_str().unwrap()], "");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.contains("no_block") && html.contains("<h2>"), "{html}");
    let output = explain(&[LOG, "--report", LOG], "");
    assert_eq!(output.status.code(), Some(2));
}

/// Names of processes and cgroups come from anybody.
/// A SLUB failure names its cache, in the text and on the page, and a report that lacks counters says so.
#[test]
fn what_is_named_and_what_is_not_known() {
    let slub = "SLUB: Unable to allocate memory on node -1, gfp=0x820(GFP_ATOMIC)\n";
    let cache =
        "  cache: kmalloc-64, object size: 64, buffer size: 64, default order: 0, min order: 0\n";
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("why.html");
    let output = explain(&["--report", page.to_str().unwrap()], &format!("{slub}{cache}"));
    let head = "line 1: SLUB allocation failure of kmalloc-64";
    assert!(text(&output.stdout).starts_with(&format!("{head}\n")), "{}", text(&output.stdout));
    assert!(fs::read_to_string(&page).unwrap().contains(&format!("<h2>{head}</h2>")));
    let nameless = explain(&[], slub);
    let head = "line 1: SLUB allocation failure\n";
    assert!(text(&nameless.stdout).starts_with(head), "{}", text(&nameless.stdout));
    let old = "crates/nearpage-explain/tests/reports/public/4.15-i386-oom.log";
    let output = explain(&[old], "");
    assert!(text(&output.stdout).contains("an unknown amount"), "{}", text(&output.stdout));
}

#[test]
fn what_a_log_says_does_not_command_the_terminal() {
    // Colours are taken off: they are what a terminal was told before.
    let log = "\u{1b}[31m\u{1b}]0;evil\u{7}: page allocation failure: order:0, mode:0xcc0(GFP_KERNEL), nodemask=(null)\n";
    let output = explain(&[], log);
    let said = text(&output.stdout);
    assert!(said.contains("of 0;evil\\u{7}") && !said.contains(['\u{1b}', '\u{7}']), "{said}");
}

/// A log of many kinds of failures is no text without an end: the first are shown, the others are counted.
#[test]
fn a_log_of_very_many_kinds_is_counted() {
    const KINDS: usize = 6000;
    let failure = |number| {
        format!(
            "t{number}: page allocation failure: order:0, mode:0xcc0(GFP_KERNEL), nodemask=(null)\n"
        )
    };
    let log: String = (0..KINDS).map(failure).collect();
    let output = explain(&[], &log);
    let shown = text(&output.stdout);
    assert_eq!(shown.matches("page allocation failure of t").count(), 4096);
    let rest =
        "1904 more of other kinds than the 4096 that are shown, the first at line 4097; --json";
    assert!(shown.contains(rest), "{}", &shown[shown.len() - 400..]);
    assert!(shown.contains("6000 reports in 6000 lines"));
}
