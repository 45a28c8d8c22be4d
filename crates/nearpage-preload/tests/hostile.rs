//! Places where something is missing: the library works there, or says once why it does not and falls back.

mod common;

use std::process::{Command, Output};

use common::{compiled, library, report_of};

/// Runs `calls`, all of whose checks must hold, inside of a command; with `keeps` those that need no memory given back.
fn calls_inside(command: &[&str], options: &str, keeps: bool) -> Option<(Output, u64)> {
    let calls = compiled("gcc", "calls.c", "calls-hostile")?;
    let program = if keeps { vec![calls.as_str(), "keeps"] } else { vec![calls.as_str()] };
    Some(inside(command, &program, options))
}

/// Runs a program inside of a command; only the program has the library.
fn inside(command: &[&str], program: &[&str], options: &str) -> (Output, u64) {
    let (report, counted) = report_of();
    let output = Command::new(command[0])
        .args(&command[1..])
        .arg("env")
        .arg(format!("LD_PRELOAD={}", library().display()))
        .arg(format!("NEARPAGE_MALLOC={options}"))
        .arg(format!("NEARPAGE_MALLOC_REPORT={}", report.display()))
        .args(program)
        .output()
        .expect("it starts");
    (output, counted(&report))
}

/// It worked, was counted, and said nothing.
fn works(what: &str, ran: Option<(Output, u64)>) {
    let Some((output, counted)) = ran else { return };
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {} {errors}", output.status);
    assert!(counted > 400_000, "{what}: {counted} allocations were counted; {errors}");
    assert!(!errors.contains("nearpage-malloc"), "{what}: {errors}");
}

/// System calls that sandboxes deny.
#[cfg(target_arch = "x86_64")]
#[test]
fn denied_system_calls() {
    let Some(denied) = compiled("gcc", "denied.c", "denied") else { return };
    for (what, numbers) in [
        ("rseq", &["334"][..]),
        ("mbind, set_mempolicy, get_mempolicy", &["237", "238", "239"]),
        ("membarrier", &["324"]),
        ("madvise", &["28"]),
        ("mremap", &["25"]),
        ("getrandom", &["318"]),
        ("sysinfo", &["99"]),
        (
            "rseq, mbind, membarrier, madvise, sched_getaffinity",
            &["334", "237", "324", "28", "204"],
        ),
    ] {
        // Without madvise nothing can go back to the kernel.
        let is_kept = numbers.contains(&"28");
        // The other modes make the same calls: once, where most is denied.
        let all: &[&str] = &["", "hardened=1,fake=2,policy=interleave"];
        for options in if numbers.len() > 4 { all } else { &all[..1] } {
            let mut command = vec![denied.as_str()];
            command.extend(numbers);
            command.push("--");
            works(&format!("{what}, {options:?}"), calls_inside(&command, options, is_kept));
        }
    }
}

/// The list of calls that a server leaves to what strangers reach, from the first object on. Without a thread of its own the
/// library makes no other call, whatever is taken and given back. (A report would be one.)
#[cfg(target_arch = "x86_64")]
#[test]
fn a_sandbox_that_begins_after_the_start() {
    let Some(program) = compiled("gcc", "sandboxed.c", "sandboxed") else { return };
    let under = |mib: &str| {
        let mut command = Command::new(&program);
        command.arg(mib).env("LD_PRELOAD", library()).env("NEARPAGE_MALLOC", "background=0");
        command.output().expect("it starts").status
    };
    for mib in ["1", "100", "500"] {
        let status = under(mib);
        assert!(status.success(), "{mib} MiB: {status}");
    }
    // The harness can tell: one other call.
    assert!(!under("0").success());
}

#[test]
fn few_descriptors_and_little_stack() {
    for limits in ["ulimit -n 8", "ulimit -s 64"] {
        let script = format!("{limits}; exec \"$@\"");
        let Some((output, _)) = calls_inside(&["sh", "-c", &script, "sh"], "", false) else {
            return;
        };
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{limits}: {} {errors}", output.status);
    }
}

/// Addresses for the program, and next to nothing for the library.
#[test]
fn few_addresses() {
    for kib in [30_000, 60_000, 120_000, 400_000] {
        let script = format!("ulimit -v {kib}; exec \"$@\"");
        let program = ["sh", "-c", "echo near"];
        let (output, _) = inside(&["sh", "-c", &script, "sh"], &program, "");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.stdout, b"near\n", "{kib}: {} {errors}", output.status);
        let told = errors.lines().filter(|line| line.contains("nearpage-malloc")).count();
        // The shell and its child, once each at most.
        assert!(told <= 2, "{kib}: {errors}");
    }
}

/// Whether `unshare` gives a mount namespace here.
fn namespaces() -> Option<Vec<&'static str>> {
    let ways = [vec!["unshare", "-m"], vec!["unshare", "-rm"]];
    let works = |way: &Vec<&str>| {
        let output = Command::new(way[0]).args(&way[1..]).arg("true").output();
        output.is_ok_and(|output| output.status.success())
    };
    let way = ways.into_iter().find(works);
    if way.is_none() {
        eprintln!(
            "SKIPPED: no mount namespaces here (they need root, or unprivileged user namespaces)"
        );
    }
    way
}

#[test]
fn without_sys() {
    let Some(mut command) = namespaces() else { return };
    let hide = "mount -t tmpfs none /sys && exec \"$@\"";
    command.extend(["sh", "-c", hide, "sh"]);
    for options in ["", "hardened=1", "policy=interleave"] {
        works(&format!("no /sys, {options:?}"), calls_inside(&command, options, false));
    }
}

/// A group with less memory than the program wants: the kernel ends it, as it would any program; one that fits runs.
#[test]
fn a_small_group() {
    let folder = format!("/sys/fs/cgroup/nearpage-test-{}", std::process::id());
    let made = std::fs::create_dir(&folder)
        .and_then(|()| std::fs::write(format!("{folder}/memory.max"), "64M"));
    if let Err(error) = made {
        let _ = std::fs::remove_dir(&folder);
        eprintln!("SKIPPED: no group of processes with a limit can be made here: {error}");
        return;
    }
    let script = format!("echo $$ >{folder}/cgroup.procs && exec \"$@\"");
    let ran = inside(&["sh", "-c", &script, "sh"], &["sh", "-c", "printf 'b\\na\\n' | sort"], "");
    let _ = std::fs::remove_dir(&folder);
    assert_eq!(ran.0.stdout, b"a\nb\n", "{}", String::from_utf8_lossy(&ran.0.stderr));
}

/// Where the kernel counts what is promised, reservations must not count.
#[test]
fn strict_overcommit() {
    let mode = std::fs::read_to_string("/proc/sys/vm/overcommit_memory").unwrap_or_default();
    if mode.trim() != "2" {
        eprintln!("SKIPPED: vm.overcommit_memory is {} here, not 2", mode.trim());
        return;
    }
    let (output, _) = inside(&["env"], &["sh", "-c", "echo near"], "");
    assert_eq!(output.stdout, b"near\n", "{}", String::from_utf8_lossy(&output.stderr));
}
