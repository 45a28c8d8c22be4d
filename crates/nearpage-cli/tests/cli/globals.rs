//! What all commands share: notes and colours, errors as JSON, completions, manual pages, a full disk.

use std::fs::File;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn nearpage(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nearpage"));
    command.args(arguments).env_remove("NO_COLOR").env_remove("NEARPAGE_NUMA");
    command
}

fn run(arguments: &[&str]) -> Output {
    nearpage(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// A machine whose description has a warning, in a format without a place for it.
const NOTED: [&str; 5] = ["topo", "--topology", "-", "--format", "dot"];

fn noted(more: &[&str]) -> Output {
    let mut command = nearpage(&NOTED);
    let mut child = command
        .args(more)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let numactl = "available: 1 nodes (0)\nnode 0 size: 64 MB\n";
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), numactl.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn quiet_hides_notes_and_no_errors() {
    let (loud, quiet) = (noted(&[]), noted(&["--quiet"]));
    assert!(text(&loud.stderr).starts_with("nearpage: standard input: "), "{loud:?}");
    assert_eq!((text(&quiet.stderr), &quiet.stdout), ("", &loud.stdout));
    let refused = run(&["--quiet", "topo", "--topology", "/nowhere"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).starts_with("nearpage: /nowhere: "), "{refused:?}");
}

#[test]
fn colours_are_there_when_they_are_asked_for() {
    let wrong = ["topo", "--topology", "/nowhere"];
    let is_coloured = |color: &[&str], no_color: bool| {
        let mut command = nearpage(&wrong);
        if no_color {
            command.env("NO_COLOR", "1");
        }
        let output = command.args(color).output().unwrap();
        text(&output.stderr).contains('\u{1b}')
    };
    assert!(is_coloured(&["--color", "always"], false));
    assert!(is_coloured(&["--color=always"], true), "the option is stronger than the variable");
    assert!(!is_coloured(&[], false), "standard error is no terminal");
    assert!(!is_coloured(&["--color", "never"], false));
    let help = |color: &str| run(&["topo", "--help", "--color", color]).stdout;
    assert!(help("always").contains(&0x1b) && !help("never").contains(&0x1b));
}

#[test]
fn errors_are_json_where_json_was_asked_for() {
    for (arguments, code) in [
        (&["topo", "--json", "--topology", "/nowhere"][..], 2),
        (&["topo", "--format", "json", "--numa", "2X"], 2),
        (&["replay", "--json", "/nowhere"], 2),
        (&["lab", "--json", "nosuch"], 2),
        (&["bench", "--json", "nosuch"], 2),
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {output:?}");
        let document: Value = serde_json::from_slice(&output.stdout).expect("one JSON document");
        assert_eq!(document["schema"], 1);
        assert_eq!(document["error"]["exit_code"], code);
        let message = document["error"]["message"].as_str().unwrap();
        let first = message.lines().next().unwrap();
        assert!(!first.is_empty() && text(&output.stderr).contains(first), "{output:?}");
        let without: Vec<&str> = arguments
            .iter()
            .copied()
            .filter(|of| !["--json", "--format", "json"].contains(of))
            .collect();
        assert_eq!(text(&run(&without).stdout), "", "{without:?}");
    }
}

#[test]
fn a_result_that_is_a_failure_is_one_document() {
    // Differences and what cannot be read are in the array itself.
    let output = run(&["verify", "--json", "/nowhere"]);
    assert_eq!(output.status.code(), Some(2));
    let document: Value = serde_json::from_slice(&output.stdout).expect("one JSON document");
    assert!(document.is_array(), "{document}");
}

#[test]
fn completions_and_manual_pages_name_every_command() {
    let help = run(&["--help"]);
    let commands = [
        "topo", "bench", "doctor", "explain", "export", "top", "lab", "verify", "replay", "record",
        "run",
    ];
    assert!(commands.iter().all(|name| text(&help.stdout).contains(name)));
    for shell in ["bash", "zsh", "fish"] {
        let output = run(&["completions", shell]);
        assert_eq!(output.status.code(), Some(0));
        let script = text(&output.stdout);
        assert!(commands.iter().all(|name| script.contains(name)), "{shell}");
        assert!(script.contains("zonelist-cache"), "{shell}: options of commands");
    }
    let folder = tempfile::tempdir().unwrap();
    // `--out` makes the folders that are missing.
    let pages = folder.path().join("share/man1");
    assert_eq!(run(&["man", "--out", pages.to_str().unwrap()]).status.code(), Some(0));
    for name in commands
        .map(|name| format!("-{name}"))
        .iter()
        .map(String::as_str)
        .chain(["", "-replay-sweep"])
    {
        let page = std::fs::read_to_string(pages.join(format!("nearpage{name}.1"))).unwrap();
        assert!(page.contains(".SH SYNOPSIS"), "{name}");
    }
    assert!(text(&run(&["man"]).stdout).contains(".SH SYNOPSIS"));
    let refused = run(&["man", "--out", "/proc/version/man1"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("expected a folder"), "{refused:?}");
}

/// Bash itself loads the completions and completes an option.
#[test]
fn bash_completes_an_option() {
    let script = "source <(\"$NEARPAGE\" completions bash) && COMP_WORDS=(nearpage topo --sys) && COMP_CWORD=2 && \
                  _nearpage nearpage --sys topo && echo \"${COMPREPLY[@]}\"";
    let mut bash = Command::new("bash");
    bash.arg("-c").arg(script);
    match bash.env("NEARPAGE", env!("CARGO_BIN_EXE_nearpage")).output() {
        Ok(output) => assert_eq!(text(&output.stdout).trim(), "--sysroot", "{output:?}"),
        Err(_) => println!("skipped: bash is not here"),
    }
}

#[test]
fn help_that_cannot_be_written_is_a_failure() {
    for arguments in [&["--help"][..], &["topo", "--help"], &["--version"], &["lab"]] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = nearpage(arguments).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {output:?}");
        assert!(text(&output.stderr).contains("cannot write the output"), "{output:?}");
    }
}
