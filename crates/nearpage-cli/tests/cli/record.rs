//! `nearpage record` as a user runs it. What needs root and tracefs is skipped without them, and says so.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::unpack;

fn nearpage(arguments: &[&str]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("nearpage"));
    command.args(arguments);
    command
}

fn output(command: &mut Command) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

fn refused(arguments: &[&str]) -> String {
    let (code, printed, message) = output(&mut nearpage(arguments));
    assert_eq!(code, Some(2), "{message}");
    // Standard output has the document of the error where JSON was asked for, and nothing else.
    let documents = usize::from(arguments.contains(&"--json"));
    assert_eq!(printed.matches("\"exit_code\": 2").count(), documents, "{printed}");
    assert_eq!(printed.is_empty(), documents == 0, "{printed}");
    message
}

/// Whether this machine lets the test trace.
fn can_trace(test: &str) -> bool {
    static WHY_NOT: OnceLock<Option<String>> = OnceLock::new();
    let why_not = WHY_NOT.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("probe.tar.zst");
        let path = path.to_str().unwrap();
        let arguments = ["record", "--duration", "10ms", "-o", path, "--", "true"];
        let (code, _, message) = output(&mut nearpage(&arguments));
        assert!(matches!(code, Some(0 | 2)), "{message}");
        (code == Some(2)).then(|| message.trim().to_owned())
    });
    if let Some(why_not) = why_not {
        eprintln!("SKIPPED: {test}: this machine cannot be traced: {why_not}");
    }
    why_not.is_none()
}

/// What recorders of processes that are no more have left, and of this one.
fn left_in_kernel(pid: u32) -> Vec<String> {
    let tracing = Path::new("/sys/kernel/tracing");
    let mut left = Vec::new();
    for entry in fs::read_dir(tracing.join("instances")).into_iter().flatten().flatten() {
        left.push(entry.file_name().to_string_lossy().into_owned());
    }
    let probes = fs::read_to_string(tracing.join("kprobe_events")).unwrap_or_default();
    left.extend(probes.lines().map(str::to_owned));
    left.retain(|name| {
        name.contains(&format!("nearpage.{pid}")) || name.contains(&format!("nearpage{pid}/"))
    });
    left
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn wrong_usage_is_told_before_anything_is_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    for arguments in [&["record"][..], &["record", "--json"]] {
        let message = refused(arguments);
        let accepted = ["-- CMD", "--duration T", "--pid PID", "--last T"];
        assert!(accepted.iter().all(|form| message.contains(form)), "{message}");
    }
    assert!(
        refused(&["record", "--", "no-such-program"]).contains("no-such-program: no such program")
    );
    assert!(refused(&["record", "--", "/proc/version"]).contains("is not executable"));
    for time in ["10", "10x", "0s"] {
        assert!(refused(&["record", "--duration", time, "--", "true"]).contains("500ms"), "{time}");
    }
    let message = refused(&["record", "-o", &path("no/a.tar.zst"), "--", "true"]);
    assert!(message.contains("there is no folder"), "{message}");
    fs::write(path("taken"), "precious").unwrap();
    let message = refused(&["record", "-o", &path("taken"), "--", "true"]);
    assert!(message.contains("exists and is not empty"), "{message}");
    assert_eq!(fs::read(path("taken")).unwrap(), b"precious");
    assert!(refused(&["record", "-o", &path(""), "--", "true"]).contains("is no file"));
    for name in ["a.zip", "a.tar.xz", "a.json"] {
        let message = refused(&["record", "-o", &path(name), "--", "true"]);
        assert!(
            message.contains("expected a name that ends in .tar.zst, .tar.gz or .tar"),
            "{message}"
        );
    }
    assert!(refused(&["record", "--pid", "1", "--", "true"]).contains("--pid"));
    assert!(refused(&["record", "--pid", "4194999"]).contains("there is no process 4194999"));
    assert!(refused(&["record", "-o", "-", "--json", "--", "true"]).contains("standard output"));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// Another user than root is told what to do, and nothing is left.
#[test]
fn without_root_it_is_told_what_to_do() {
    const NOBODY: u32 = 65534;
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("nearpage");
    fs::copy(assert_cmd::cargo::cargo_bin!("nearpage"), &program).unwrap();
    let path = std::env::temp_dir().join(format!("nearpage-record-{}.tar.zst", std::process::id()));
    let mut command = Command::new(&program);
    command.args(["record", "-o", path.to_str().unwrap(), "--", "true"]);
    let is_root = fs::read_dir("/sys/kernel/tracing").is_ok();
    if is_root {
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(folder.path(), open).unwrap();
        command.uid(NOBODY).gid(NOBODY);
    }
    let (code, _, message) = output(&mut command);
    assert_eq!(code, Some(2), "{message}");
    assert!(message.contains("needs root") && message.contains("--print-script"), "{message}");
    assert!(!path.exists());
    // Nor is it to look for another place for the bundle, if root could write here.
    let mut command = Command::new(&program);
    command.args(["record", "--", "true"]).current_dir("/");
    if is_root {
        command.uid(NOBODY).gid(NOBODY);
    }
    let (code, _, message) = output(&mut command);
    assert!(code == Some(2) && message.contains("needs root"), "{message}");
}

#[test]
fn the_script_is_plain_sh() {
    let (code, script, _) = output(&mut nearpage(&["record", "--print-script"]));
    assert_eq!(code, Some(0));
    assert!(script.starts_with("#!/bin/sh\n"));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("record.sh");
    fs::write(&path, script).unwrap();
    let checks: [&[&str]; 4] = [
        &["sh", "-n"],
        &["dash", "-n"],
        &["busybox", "ash", "-n"],
        &["shellcheck", "--severity=warning"],
    ];
    for check in checks {
        let run = Command::new(check[0]).args(&check[1..]).arg(&path).output();
        let Ok(run) = run else {
            eprintln!("SKIPPED: the_script_is_plain_sh: there is no {}", check[0]);
            continue;
        };
        assert!(run.status.success(), "{check:?}: {}", String::from_utf8_lossy(&run.stdout));
    }
    let run = Command::new("sh").arg(&path).args(["--duration", "10", "--", "true"]).output();
    let run = run.unwrap();
    assert_eq!(run.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&run.stderr).contains("500ms"));
}

/// The command that the script records exchanges the bundle for a link to a file of root's, and has no terminal.
#[test]
fn the_script_follows_no_link_of_its_command() {
    if !can_trace("the_script_follows_no_link_of_its_command") {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let (home, secret) = (root.path().join("home"), root.path().join("secret"));
    fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(&home).unwrap();
    chown(&home, Some(12_345), Some(12_346)).unwrap();
    fs::write(&secret, "of root").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    let (_, script, _) = output(&mut nearpage(&["record", "--print-script"]));
    fs::write(root.path().join("record.sh"), script).unwrap();
    let record = |path: &str, work: &str| {
        let mut command = Command::new("sh");
        command.arg("../record.sh").args(["-o", path, "--", "sh", "-c", work]);
        command.current_dir(&home).env("SUDO_UID", "12345").env("SUDO_GID", "12346");
        output(&mut command)
    };
    let (code, _, message) = record("a.tar.gz", "rm a.tar.gz; ln -s ../secret a.tar.gz");
    assert!(code == Some(2) && message.contains("removed or replaced"), "{message}");
    assert_eq!(fs::read_to_string(&secret).unwrap(), "of root");
    assert_eq!(fs::metadata(&secret).unwrap().uid(), 0);

    // So does a folder on the way.
    fs::create_dir(home.join("in")).unwrap();
    fs::create_dir(root.path().join("etc")).unwrap();
    let work = "mv in moved; ln -s ../etc in; ls -l /proc/self/fd; ps -o tty= -p $$";
    chown(home.join("in"), Some(12_345), Some(12_346)).unwrap();
    let (code, _, message) = record("in/b.tar.gz", work);
    assert_eq!(code, Some(0), "{message}");
    assert_eq!(fs::read_dir(root.path().join("etc")).unwrap().count(), 0);
    let bundle = fs::metadata(home.join("moved/b.tar.gz")).unwrap();
    assert_eq!((bundle.uid(), bundle.mode() & 0o777), (12_345, 0o600));
    unpack(&home.join("moved/b.tar.gz"), root.path());
    let printed = fs::read_to_string(root.path().join("b/cmd.txt")).unwrap();
    assert!(!printed.contains("b.tar.gz") && printed.trim_end().ends_with('?'), "{printed}");
}

/// A bundle that was recorded here is read by all that read bundles, and replayed.
#[test]
fn this_machine_is_recorded_and_replayed() {
    if !can_trace("this_machine_is_recorded_and_replayed") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("files.tar.zst").display().to_string();
    let work =
        "echo printed; for i in 1 2 3 4; do head -c 4000000 /dev/zero | tail -c 1; done; exit 3";
    let mut recorder =
        nearpage(&["record", "--slab", "--lock", "-o", &path, "--", "sh", "-c", work]);
    let recorder = recorder.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = recorder.id();
    let recorded = recorder.wait_with_output().unwrap();
    let message = String::from_utf8_lossy(&recorded.stderr).into_owned();
    assert_eq!(recorded.status.code(), Some(3), "{message}");
    assert!(message.contains("exit code 3") && message.contains("cmd.txt: printed"), "{message}");
    assert_eq!(left_in_kernel(pid), Vec::<String>::new());

    let unpacked = folder.path().join("unpacked");
    fs::create_dir(&unpacked).unwrap();
    unpack(Path::new(&path), &unpacked);
    let meta = json(&fs::read_to_string(unpacked.join("files/meta.json")).unwrap());
    assert_eq!(meta["format"], "nearpage-bundle 1");
    assert_eq!((&meta["name"], &meta["exit_status"]), (&"files".into(), &3.into()));
    let counts = &meta["event_counts"];
    assert!(counts["mm_page_alloc"].as_u64().unwrap() > 100, "{counts}");
    assert!(counts["kmem_cache_alloc"].as_u64().unwrap() > 100, "{counts}");
    assert!(counts["tracing_mark_write"].as_u64().unwrap() >= 8, "{counts}");

    for arguments in [
        &["topo", "--bundle", &path, "--format", "json"][..],
        &["verify", "--json", &path],
        &["replay", "--json", &path],
    ] {
        let (code, printed, message) = output(&mut nearpage(arguments));
        // A machine whose kernel no model fits is verified with differences.
        let is_read = code == Some(0) || (code == Some(1) && arguments[0] == "verify");
        assert!(is_read, "{arguments:?}: {message}");
        let answer = json(&printed);
        if arguments[0] == "replay" {
            let rows = answer["fidelity"]["rows"].as_array().unwrap();
            // Full pagesets may need no refill for so little, but pages are handed out.
            let hits = rows.iter().find(|row| row["quantity"] == "numa_hit").unwrap();
            assert!(hits["recorded"].as_u64().is_some_and(|pages| pages > 100), "{hits}");
        }
    }
}

#[test]
fn call_chains_are_recorded() {
    if !can_trace("call_chains_are_recorded") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("chains.tar.zst").display().to_string();
    // `tail` keeps 64 MiB: more than pagesets have, so that some of it takes the zone's lock.
    let work = "head -c 64M /dev/zero | tail -c 64M >/dev/null; ls /";
    let record = ["record", "--stacks", "-o", &path, "--", "sh", "-c", work];
    let (code, _, message) = output(&mut nearpage(&record));
    assert_eq!(code, Some(0), "{message}");
    let summary = ["trace", "summary", &path, "--by", "site", "--blame", "--json"];
    let (code, printed, message) = output(&mut nearpage(&summary));
    assert_eq!(code, Some(0), "{message}");
    let summary = json(&printed);
    let (with, all) = (summary["with_stack"].as_u64().unwrap(), &summary["requests"]["allocs"]);
    // Some events come where no chain can be had.
    assert!(10 * with > 9 * all.as_u64().unwrap(), "{with} of {all}");
    let groups = summary["groups"].as_array().unwrap();
    let holds = |group: &Value| group["holds"].as_u64().unwrap_or(0);
    assert!(groups.len() > 3 && groups.iter().map(holds).sum::<u64>() > 0, "{printed}");
}

#[test]
fn cgroups_are_told() {
    if !can_trace("cgroups_are_told") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cgroups.tar.zst").display().to_string();
    let work = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; ls -l /usr/lib >/dev/null; sleep 2; ls -l /usr/lib";
    let record = ["record", "--cgroups", "-o", &path, "--", "sh", "-c", work];
    let (code, _, message) = output(&mut nearpage(&record));
    assert_eq!(code, Some(0), "{message}");
    let summary = ["trace", "summary", &path, "--by", "cgroup", "--json"];
    let (code, printed, message) = output(&mut nearpage(&summary));
    assert_eq!(code, Some(0), "{message}");
    let summary = json(&printed);
    let groups = summary["groups"].as_array().unwrap();
    let own = fs::read_to_string("/proc/self/cgroup").unwrap();
    let known = groups.iter().filter_map(|group| group["name"].as_str());
    let known: Vec<&str> = known.filter(|name| name.starts_with('/')).collect();
    assert!(known.iter().any(|name| own.contains(*name)), "{known:?} {own}");
}

/// A redacted bundle names nobody, and is replayed like another.
#[test]
fn a_redacted_bundle_names_nobody() {
    if !can_trace("a_redacted_bundle_names_nobody") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let tool = folder.path().join("payroll-tool");
    fs::copy("/usr/bin/head", &tool).unwrap();
    let tool = tool.to_str().unwrap();
    let paths = ["whole/", "kept/"].map(|name| folder.path().join(name));
    let texts = paths.each_ref().map(|path| {
        let redact = if path.ends_with("kept") { &["--redact"][..] } else { &[] };
        let path = path.to_str().unwrap();
        let work = ["-o", path, "--", tool, "-c", "4000000", "/dev/zero"];
        let (code, _, message) = output(&mut nearpage(&[&["record"], redact, &work].concat()));
        assert_eq!(code, Some(0), "{message}");
        assert_eq!(
            message.contains("figures of all tasks, without their names"),
            !redact.is_empty()
        );
        let (code, printed, message) = output(&mut nearpage(&["replay", "--json", path]));
        assert_eq!(code, Some(0), "{message}");
        let rows = json(&printed)["fidelity"]["rows"].as_array().unwrap().clone();
        let hits = rows.into_iter().find(|row| row["quantity"] == "numa_hit").unwrap();
        assert!(hits["recorded"].as_u64().is_some_and(|pages| pages > 100), "{hits}");
        let packed = fs::read(Path::new(path).join("trace.txt.zst")).unwrap();
        let mut text = Vec::new();
        let mut stream = ruzstd::decoding::StreamingDecoder::new(&packed[..]).unwrap();
        stream.read_to_end(&mut text).unwrap();
        for file in super::tidy::files(Path::new(path), "") {
            text.extend(fs::read(file).unwrap());
        }
        String::from_utf8_lossy(&text).into_owned()
    });
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    for secret in ["payroll", release.trim(), "start_epoch", "Command line:"] {
        assert!(!texts[1].contains(secret), "{secret}");
    }
    assert!(texts[0].contains("payroll") && texts[0].contains("start_epoch"));
    let names = |text: &str| text.lines().any(|line| line.trim_start().starts_with("task0-"));
    assert!(names(&texts[1]) && !names(&texts[0]));
}

/// Ctrl-C ends the command and all that it started, twice if they do not listen; what happened until then is kept.
#[test]
fn an_interrupted_recording_is_kept() {
    if !can_trace("an_interrupted_recording_is_kept") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut.tar.zst");
    let work = "trap '' TERM; sleep 71.5 & echo $! > pid; wait";
    let mut command = nearpage(&["record", "-o", "cut.tar.zst", "--", "sh", "-c", work]);
    command.current_dir(folder.path()).stdout(Stdio::null()).stderr(Stdio::piped());
    let recorder = command.spawn().unwrap();
    let pid = recorder.id();
    let begun = Instant::now();
    while fs::read_to_string(folder.path().join("pid")).unwrap_or_default().is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(60), "the command did not start");
        std::thread::sleep(Duration::from_millis(50));
    }
    // The file is there before the number is in it.
    let sleeper = fs::read_to_string(folder.path().join("pid")).unwrap();
    for _ in 0..2 {
        let interrupt = Command::new("kill").args(["-INT", &pid.to_string()]).status().unwrap();
        assert!(interrupt.success());
        std::thread::sleep(Duration::from_millis(500));
    }
    let recorded = recorder.wait_with_output().unwrap();
    let message = String::from_utf8_lossy(&recorded.stderr).into_owned();
    assert_eq!(recorded.status.code(), Some(130), "{message}");
    assert!(message.contains("until then"), "{message}");
    assert_eq!(left_in_kernel(pid), Vec::<String>::new());
    let state = fs::read_to_string(format!("/proc/{}/stat", sleeper.trim())).unwrap_or_default();
    assert!(state.is_empty() || state.contains(" Z "), "{state}");
    let (code, _, message) = output(&mut nearpage(&["topo", "--bundle", path.to_str().unwrap()]));
    assert_eq!(code, Some(0), "{message}");
}

/// Starts a recorder of a command that runs for minutes, and waits until the command runs.
fn recorder(folder: &Path, options: &[&str]) -> (std::process::Child, String) {
    let work = "echo $$ > pid; exec sleep 71.5";
    let mut command = nearpage(&[&["record"], options, &["--", "sh", "-c", work]].concat());
    command.current_dir(folder).stdout(Stdio::null()).stderr(Stdio::piped());
    let recorder = command.spawn().unwrap();
    let begun = Instant::now();
    while fs::read_to_string(folder.join("pid")).unwrap_or_default().trim().is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(60), "the command did not start");
        std::thread::sleep(Duration::from_millis(50));
    }
    (recorder, fs::read_to_string(folder.join("pid")).unwrap().trim().to_owned())
}

fn send(signal: &str, pid: u32) {
    assert!(Command::new("kill").args([signal, &pid.to_string()]).status().unwrap().success());
}

fn runs(pid: &str) -> bool {
    let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !state.is_empty() && !state.contains(" Z ")
}

/// What ends other programs with a core ends a recording like Ctrl-C: the bundle is kept, and the kernel is clean.
#[test]
fn a_quit_recording_is_kept() {
    if !can_trace("a_quit_recording_is_kept") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (recorder, sleeper) = recorder(folder.path(), &["-o", "quit.tar.gz"]);
    let pid = recorder.id();
    send("-QUIT", pid);
    let recorded = recorder.wait_with_output().unwrap();
    let message = String::from_utf8_lossy(&recorded.stderr).into_owned();
    assert_eq!(recorded.status.code(), Some(131), "{message}");
    assert!(message.contains("interrupted by signal 3"), "{message}");
    assert_eq!(left_in_kernel(pid), Vec::<String>::new());
    assert!(!runs(&sleeper));
    let path = folder.path().join("quit.tar.gz");
    assert!(fs::read(&path).unwrap().starts_with(&[0x1f, 0x8b]));
    let (code, _, message) = output(&mut nearpage(&["topo", "--bundle", path.to_str().unwrap()]));
    assert_eq!(code, Some(0), "{message}");
}

/// A recorder that aborts has no bundle to give, but leaves neither instance nor probes nor command nor file.
#[test]
fn an_aborted_recorder_leaves_nothing() {
    if !can_trace("an_aborted_recorder_leaves_nothing") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (recorder, sleeper) = recorder(folder.path(), &["-o", "aborted.tar.zst"]);
    let pid = recorder.id();
    assert!(!left_in_kernel(pid).is_empty());
    send("-ABRT", pid);
    let ended = recorder.wait_with_output().unwrap();
    let (status, message) = (ended.status, String::from_utf8_lossy(&ended.stderr));
    assert!(!message.contains("panicked"), "{message}");
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(6), "{status:?}");
    assert_eq!(left_in_kernel(pid), Vec::<String>::new());
    std::thread::sleep(Duration::from_millis(200));
    assert!(!runs(&sleeper));
    let names: Vec<_> =
        fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["pid"]);
}

/// Without a command: for a time, or until a process ends, which is not disturbed.
#[test]
fn what_is_no_command_is_recorded_too() {
    if !can_trace("what_is_no_command_is_recorded_too") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let record = |arguments: &[&str]| {
        let mut command = nearpage(&[&["record", "--json"], arguments].concat());
        let (code, printed, message) = output(command.current_dir(folder.path()));
        assert_eq!(code, Some(0), "{arguments:?}: {message}");
        json(&printed)
    };
    let recorded = record(&["--duration", "600ms"]);
    assert_eq!(recorded["bundle"], "nearpage-machine.tar.zst");
    assert_eq!((&recorded["ended"], &recorded["schema"]), (&"after-duration".into(), &1.into()));
    assert!(recorded["seconds"].as_f64() > Some(0.6) && recorded["events"].as_u64() > Some(0));
    assert!(recorded["left"].is_null() && recorded["pid"].is_null(), "{recorded}");

    let mut sleeper = Command::new("sleep").arg("0.7").spawn().unwrap();
    let pid = sleeper.id().to_string();
    let recorded = record(&["--pid", &pid, "--duration", "60s", "-o", "of-pid/"]);
    assert_eq!((&recorded["ended"], &recorded["exit_code"]), (&"by-itself".into(), &0.into()));
    assert_eq!(recorded["pid"].to_string(), pid);
    assert!(sleeper.wait().unwrap().success());
    let meta = json(&fs::read_to_string(folder.path().join("of-pid/meta.json")).unwrap());
    assert_eq!((&meta["name"], meta["pid"].to_string()), (&"of-pid".into(), pid));

    let mut sleeper = Command::new("sleep").arg("71.5").spawn().unwrap();
    let pid = sleeper.id().to_string();
    let recorded = record(&["--pid", &pid, "--duration", "300ms", "-o", "cut.tar"]);
    assert_eq!(recorded["ended"], "after-duration");
    assert!(runs(&pid), "the process goes on");
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    for bundle in ["nearpage-machine.tar.zst", "of-pid", "cut.tar"] {
        let path = folder.path().join(bundle).display().to_string();
        let (code, _, message) = output(&mut nearpage(&["topo", "--bundle", &path]));
        assert_eq!(code, Some(0), "{bundle}: {message}");
    }
}

/// What is older than two windows is forgotten; a replay begins where the former began, with its capture and state.
#[test]
fn what_happened_last_is_kept() {
    if !can_trace("what_happened_last_is_kept") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let arguments = [
        "record",
        "--json",
        "--last",
        "1s",
        "--on",
        "killed",
        "--duration",
        "5500ms",
        "-o",
        "last/",
    ];
    let (code, printed, message) = output(nearpage(&arguments).current_dir(folder.path()));
    assert_eq!(code, Some(0), "{message}");
    let recorded = json(&printed);
    assert_eq!((&recorded["ended"], &recorded["mark"]), (&"after-duration".into(), &Value::Null));
    let packed = fs::File::open(folder.path().join("last/trace.txt.zst")).unwrap();
    let mut trace = Vec::new();
    let mut text = nearpage_trace::unpacked(packed, &nearpage_machine::Budget::DEFAULT).unwrap();
    text.read_to_end(&mut trace).unwrap();
    let trace = String::from_utf8_lossy(&trace);
    assert_eq!(trace.matches("nearpage: before begin").count(), 1);
    let (_, window) = trace.split_once("nearpage: window ").expect("a window began");
    let (window, _) = window.split_once(' ').unwrap();
    assert!(window.parse::<u32>().unwrap() >= 2, "{window}");
    let bundle = folder.path().join("last").display().to_string();
    let (code, printed, message) = output(&mut nearpage(&["replay", &bundle, "--json"]));
    assert_eq!(code, Some(0), "{message}");
    let replayed = json(&printed);
    assert!(replayed["trace"]["allocs"].as_u64() > Some(0), "{replayed}");

    let mut command = nearpage(&["record", "--last", "1s", "-o", "asked.tar.zst"]);
    command.current_dir(folder.path()).stdout(Stdio::null()).stderr(Stdio::piped());
    let recorder = command.spawn().unwrap();
    let pid = recorder.id();
    std::thread::sleep(Duration::from_secs(4));
    send("-TERM", pid);
    let ended = recorder.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(0), "{}", String::from_utf8_lossy(&ended.stderr));
    assert_eq!(left_in_kernel(pid), Vec::<String>::new());
    let path = folder.path().join("asked.tar.zst").display().to_string();
    let (code, _, message) = output(&mut nearpage(&["topo", "--bundle", &path]));
    assert_eq!(code, Some(0), "{message}");
    for arguments in [&["--last", "1s", "--", "true"][..], &["--on", "killed", "--duration", "1s"]]
    {
        refused(&[&["record"], arguments].concat());
    }
}

/// The command of a recorder that is root by sudo, or that has `--user`, has no right of root's, nor what is secret in its
/// environment.
#[test]
fn the_command_is_of_who_called_sudo() {
    if !can_trace("the_command_is_of_who_called_sudo") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let work = "id -u; id -g; id -G; echo $HOME $USER $LOGNAME secret=$SECRET sudo=$SUDO_UID$PKEXEC_UID$DOAS_USER; \
                cat /proc/1/environ; (: </dev/tty) && echo terminal; echo again >>/dev/stdout";
    for (number, (by, sudo, user, expected)) in [
        ("SUDO_UID", "12345", None, "12345\n12346\n12346\n/ 12345 12345 secret=s sudo=\n"),
        (
            "SUDO_UID",
            "12345",
            Some("nobody"),
            "65534\n65534\n65534\n/nonexistent nobody nobody secret= sudo=\n",
        ),
        (
            "SUDO_UID",
            "",
            Some("65534"),
            "65534\n65534\n65534\n/nonexistent nobody nobody secret= sudo=\n",
        ),
        ("SUDO_UID", "12345", Some("root"), "0\n0\n0\n/root-home u l secret=s sudo=12345\n"),
        (
            "PKEXEC_UID",
            "65534",
            None,
            "65534\n65534\n65534\n/nonexistent nobody nobody secret=s sudo=\n",
        ),
        (
            "DOAS_USER",
            "nobody",
            None,
            "65534\n65534\n65534\n/nonexistent nobody nobody secret=s sudo=\n",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let bundle = format!("{number}/");
        let user = user.map_or(vec![], |user| vec!["--user", user]);
        let arguments = [&["record", "-o", &bundle], &*user, &["--", "sh", "-c", work]].concat();
        let mut command = nearpage(&arguments);
        command.current_dir(folder.path());
        command.envs([("SECRET", "s"), ("HOME", "/root-home"), ("USER", "u"), ("LOGNAME", "l")]);
        command.env(by, sudo).env("SUDO_GID", "12346");
        let (_, _, message) = output(&mut command);
        let printed = fs::read(folder.path().join(&bundle).join("cmd.txt"));
        let printed = printed.unwrap_or_else(|error| panic!("{arguments:?}: {error}: {message}"));
        let printed = String::from_utf8_lossy(&printed);
        assert!(printed.starts_with(expected), "{arguments:?}: {printed:?}, expected {expected:?}");
        let is_told = message.contains("runs as 12345, who called sudo; --user root");
        assert_eq!(is_told, arguments.len() == 7 && number == 0, "{message}");
        assert!(printed.ends_with("again\n"), "{printed}");
        if !expected.starts_with("0\n") {
            assert!(printed.contains("/proc/1/environ: Permission denied"), "{printed}");
            assert!(!printed.contains("terminal\n"), "{printed}");
        }
    }
    let message = refused(&["record", "--user", "no-such-user", "--", "true"]);
    assert!(message.contains("there is no such user; expected the name"), "{message}");
    assert!(refused(&["record", "--user", "nobody", "--duration", "1s"]).contains("CMD"));
}

/// A bundle that root recorded by sudo is for the user who called it, in folders of that user; elsewhere it is root's.
#[test]
fn a_bundle_is_for_who_called_sudo() {
    if !can_trace("a_bundle_is_for_who_called_sudo") {
        return;
    }
    const CALLER: (u32, u32) = (12_345, 12_346);
    let folder = tempfile::tempdir().unwrap();
    let (own, other) = (folder.path().join("own"), folder.path().join("other"));
    fs::create_dir(&own).unwrap();
    fs::create_dir(&other).unwrap();
    chown(&own, Some(CALLER.0), Some(CALLER.1)).unwrap();
    for (folder, output_path, made, owner, mode) in [
        (&own, "a.tar.zst", "a.tar.zst", CALLER, 0o600),
        (&own, "b/", "b", CALLER, 0o700),
        (&own, "c/", "c/before/zoneinfo", CALLER, 0o600),
        (&other, "a.tar", "a.tar", (0, 0), 0o600),
    ] {
        let mut command = nearpage(&["record", "--duration", "10ms", "-o", output_path]);
        command.current_dir(folder).env("SUDO_UID", "12345").env("SUDO_GID", "12346");
        let (code, _, message) = output(&mut command);
        assert_eq!(code, Some(0), "{message}");
        let others = if owner.0 == 0 { "".into() } else { format!("user {} and ", owner.0) };
        let readers = format!("what the command printed; only {others}root can read it");
        assert!(message.contains(&readers), "{message}");
        let found = fs::metadata(folder.join(made)).unwrap();
        let has = (found.uid(), found.gid(), found.mode() & 0o777);
        assert_eq!(has, (owner.0, owner.1, mode), "{folder:?} {made}");
    }
    assert_eq!(fs::read_dir(&own).unwrap().count(), 3);
}

#[test]
fn a_bundle_goes_through_a_pipe() {
    if !can_trace("a_bundle_goes_through_a_pipe") {
        return;
    }
    let work = "head -c 40000000 /dev/zero | tail -c 1";
    let recorded = nearpage(&["record", "-o", "-", "--", "sh", "-c", work]).output().unwrap();
    let message = String::from_utf8_lossy(&recorded.stderr).into_owned();
    assert_eq!(recorded.status.code(), Some(0), "{message}");
    assert!(message.contains("standard output: ") && message.contains(" events, "), "{message}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("piped");
    fs::write(&path, &recorded.stdout).unwrap();
    let mut replay = nearpage(&["replay", "-", "--json"]);
    let (code, printed, message) = output(replay.stdin(fs::File::open(&path).unwrap()));
    assert_eq!(code, Some(0), "{message}");
    assert_eq!(json(&printed)["bundle"], "standard input");
}

/// Rings of 64 KiB fill some hundred times: nothing ends, and what is missing is counted.
#[test]
fn full_rings_are_survived() {
    if !can_trace("full_rings_are_survived") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let work =
        "for i in 1 2 3 4 5 6 7 8; do head -c 40000000 /dev/zero | tail -c 20000000 | wc -c; done";
    let record = |limits: &[&str], path: &str| {
        let command = [&["record", "--json", "--buffer", "64K", "-o", path][..], limits].concat();
        let mut command = nearpage(&[&command[..], &["--", "sh", "-c", work]].concat());
        let (code, printed, message) = output(command.current_dir(folder.path()));
        assert_eq!(code, Some(0), "{limits:?}: {message}");
        (json(&printed), message)
    };
    let markers = |folder: &Path| {
        let trace = fs::File::open(folder.join("trace.txt.zst")).unwrap();
        let mut markers = Vec::new();
        let mut last_ns = 0;
        let counts = nearpage_trace::read_trace::<nearpage_trace::TraceError>(
            "trace",
            nearpage_trace::unpacked(trace, &nearpage_machine::Budget::DEFAULT).unwrap(),
            |event| {
                assert!(event.time_ns >= last_ns, "lines are in the order of time");
                last_ns = event.time_ns;
                if let nearpage_trace::Event::Marker(text) = event.event {
                    markers.push(String::from_utf8_lossy(text).into_owned());
                }
                Ok(())
            },
        );
        (markers, counts.unwrap().events)
    };

    let (recorded, _) = record(&[], "streamed/");
    assert!(recorded["cut"].is_null() && recorded["lost_marks"] == 0, "{recorded}");
    assert_eq!(recorded["buffer_bytes"], 64 << 10);
    // Sixteen times what the rings of two CPUs hold.
    assert!(recorded["ring_bytes"].as_u64() > Some(2 << 20), "{recorded}");
    let (marks, events) = markers(&folder.path().join("streamed"));
    assert_eq!(Some(events), recorded["events"].as_u64());
    let wanted =
        ["before begin", "before end", "cmd begin", "cmd end rc=0", "after begin", "after end"];
    for wanted in wanted {
        let is_wanted = |mark: &&String| mark.trim() == format!("nearpage: {wanted}");
        assert_eq!(marks.iter().filter(is_wanted).count(), 1, "{wanted}: {marks:?}");
    }

    let (recorded, message) = record(&["--max-size", "256K"], "cut/");
    assert!(message.contains("the trace is cut off"), "{message}");
    assert!(recorded["lost_events"].as_u64() > Some(1000), "{recorded}");
    assert_eq!(recorded["ring_bytes"], 256 << 10);
    let (marks, _) = markers(&folder.path().join("cut"));
    // On a busy machine the rings may be full before the first marker.
    match marks.first() {
        Some(first) => assert!(first.contains("before begin"), "the beginning is kept: {marks:?}"),
        None => assert!(recorded["lost_marks"].as_u64() > Some(0), "{recorded}"),
    }
    for bundle in ["streamed", "cut"] {
        let path = folder.path().join(bundle).display().to_string();
        let (code, _, message) = output(&mut nearpage(&["replay", &path]));
        assert_eq!(code, Some(0), "{bundle}: {message}");
    }
}
