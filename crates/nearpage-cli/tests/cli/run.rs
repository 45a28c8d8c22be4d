//! `nearpage run` as a user runs it. Without the library to preload, which its own package builds, half is skipped.

use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

fn nearpage(arguments: &[&str]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("nearpage"));
    command.arg("run").args(arguments);
    command
}

fn output(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = nearpage(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// Whether there is a library to preload.
fn has_library(test: &str) -> bool {
    let folder = assert_cmd::cargo::cargo_bin!("nearpage").parent().map(PathBuf::from).unwrap();
    let name = "libnearpage_preload.so";
    let found = folder.join(name).exists() || folder.join("deps").join(name).exists();
    if !found {
        eprintln!("SKIPPED: {test}: there is no {name} (cargo build -p nearpage-preload)");
    }
    found
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn a_program_is_counted_and_its_output_passes() {
    if !has_library("counts") {
        return;
    }
    let (code, printed, errors) =
        output(&["--json", "--", "sh", "-c", "ls / >/dev/null; echo near; exit 3"]);
    assert_eq!((code, printed.as_str()), (Some(3), "near\n"), "{errors}");
    let report = json(&errors);
    assert_eq!(report["exit_code"], 3);
    assert_eq!(report["uncounted"], Value::Null);
    let processes = report["processes"].as_array().unwrap();
    assert!(
        processes.iter().any(|process| process["allocations"].as_u64().unwrap() > 10),
        "{errors}"
    );
    let (_, _, text) = output(&["--options", "hardened=1", "--", "ls", "/"]);
    assert!(text.starts_with("ls /: exit code 0\n") && text.contains("sizes of process"), "{text}");
}

#[test]
fn a_static_program_runs_and_the_report_says_why_it_is_not_counted() {
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("s.c"), folder.path().join("s"));
    std::fs::write(&source, "int main(void) { return 5; }\n").unwrap();
    let built = Command::new("gcc").arg("-static").arg(&source).arg("-o").arg(&program).output();
    if !built.is_ok_and(|built| built.status.success()) || !has_library("static") {
        eprintln!("SKIPPED: no static program: gcc is not installed (apt install gcc libc6-dev)");
        return;
    }
    let (code, _, errors) = output(&["--", program.to_str().unwrap()]);
    assert_eq!(code, Some(5));
    assert!(errors.contains("is statically linked: it has no loader"), "{errors}");
}

#[test]
fn wrong_usage_and_programs_that_cannot_be_run() {
    for (arguments, expected, text) in [
        (&[][..], 2, "<COMMAND>..."),
        (&["--"], 2, "<COMMAND>..."),
        (&["--options", "polcy=bind", "--", "ls"], 2, "accepted are policy=local"),
        (&["--library", "/no/such.so", "--", "ls"], 2, "--library names another place"),
        (
            &["--policy-only", "--options", "policy=bind,nodes=0,hardened=1", "--", "true"],
            2,
            "--policy-only: hardened=1 is an option of the malloc, which does not run",
        ),
        (
            &["--policy-only", "--options", "nodes=0", "--", "true"],
            2,
            "--policy-only: nodes without a policy do nothing",
        ),
        (&["--policy-only", "--", "/no/such/program"], 127, "/no/such/program: No such file"),
        (&["--policy-only", "--", "/etc/passwd"], 126, "/etc/passwd: Permission denied"),
        (
            &["--policy-only", "--output", "/no/such/report", "--", "echo", "it ran"],
            2,
            "cannot write /no/such/report: No such file",
        ),
        (
            &["--policy-only", "--options", "policy=bind,nodes=62+63", "--", "true"],
            2,
            "no node of nodes=62-63 has memory; this machine has it on 0",
        ),
    ] {
        let (code, printed, errors) = output(arguments);
        assert_eq!((code, printed.as_str()), (Some(expected), ""), "{arguments:?}: {errors}");
        assert!(errors.contains(text), "{arguments:?}: {errors}");
    }
}

#[test]
fn signals_pass_both_ways() {
    let (code, _, _) = output(&["--policy-only", "--", "sh", "-c", "kill -KILL $$"]);
    assert_eq!(code, Some(128 + 9));
    let script = "trap 'exit 44' TERM; echo ready; while :; do sleep 0.05; done";
    let mut child = nearpage(&["--policy-only", "--", "sh", "-c", script])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = [0; 6];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
    // SAFETY: sends a signal to a child that is not waited for yet.
    unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
    let status = child.wait().unwrap();
    assert_eq!((status.code(), status.signal()), (Some(44), None));
}

#[test]
fn the_report_may_go_to_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report");
    let file = file.to_str().unwrap();
    let (code, printed, errors) =
        output(&["--policy-only", "--output", file, "--", "echo", "near"]);
    assert_eq!((code, printed.as_str(), errors.as_str()), (Some(0), "near\n", ""));
    let text = std::fs::read_to_string(file).unwrap();
    assert!(
        text.contains("no calls were counted: it ran with its own malloc, and under no policy"),
        "{text}"
    );
    let page = folder.path().join("page");
    let asked = ["--policy-only", "--report", page.to_str().unwrap(), "--", "echo", "near"];
    assert_eq!(output(&asked).0, Some(0));
    assert!(
        std::fs::read_to_string(page)
            .unwrap()
            .contains("it ran with its own malloc, and under no policy")
    );
}

/// A program that is smaller than this command: it is not told this command's own figure. A larger one is told its own.
#[test]
fn peaks_are_those_of_the_program() {
    let peak = |report: &Value| report["peak_rss_kib"].as_u64();
    let (_, _, errors) = output(&["--policy-only", "--json", "--", "true"]);
    let small = json(&errors);
    let most = small["peak_rss_most_kib"].as_u64().unwrap();
    assert!(peak(&small).is_none_or(|peak| peak <= most), "{errors}");
    // What it tells is what another way tells, which knows nothing of this command: the shell's child is small.
    let script = "exec </proc/self/status; while read name peak unit; do [ $name = VmHWM: ] && echo $peak; done";
    let shell = Command::new("sh").args(["-c", script]).output().unwrap();
    let own: u64 = String::from_utf8_lossy(&shell.stdout).trim().parse().unwrap();
    assert!(peak(&small).is_none_or(|peak| peak < own + 1024), "{own}: {errors}");
    let script = "x=$(head -c 60000000 /dev/zero | tr '\\0' a)";
    let (_, _, errors) = output(&["--policy-only", "--json", "--", "sh", "-c", script]);
    let large = json(&errors);
    assert!(peak(&large).is_some_and(|peak| peak > 58_000), "{errors}");
    if has_library("peaks") {
        let (_, _, errors) = output(&["--json", "--", "ls", "/"]);
        let counted = json(&errors);
        let own = &counted["processes"][0];
        // Kernels count what is resident by CPU, and add it up now and then.
        let apart = peak(&counted).zip(own["peak_rss_kib"].as_u64());
        assert!(apart.is_some_and(|(all, own)| all.abs_diff(own) < 1024), "{errors}");
        assert_eq!(own["command"], "ls /");
        let (_, _, text) = output(&["--", "true"]);
        assert!(text.contains("called no malloc") && text.contains("  true"), "{text}");
        let (_, _, text) = output(&["--", "sh", "-c", "sort /etc/passwd >/dev/null; true & wait"]);
        assert!(text.contains("  sort /etc/passwd") && text.contains("more of sh)"), "{text}");
    }
}
