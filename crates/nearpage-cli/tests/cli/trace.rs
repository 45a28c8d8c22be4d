//! `nearpage trace export` and `nearpage trace twin` as a user runs them.

use std::fs;
use std::process::{Command, Output};

use super::tidy::root;

const BUNDLE: &str = "bundles/q612-n2-mixed.tar.zst";

fn export(arguments: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_nearpage");
    Command::new(program)
        .current_dir(root())
        .args(["trace", "export"])
        .args(arguments)
        .output()
        .unwrap()
}

fn json(output: &Output) -> serde_json::Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The counts of a timeline are those of the bundle's trace, which the replay counts by itself.
#[test]
fn a_bundle_becomes_timelines_with_all_its_events() {
    let folder = tempfile::tempdir().unwrap();
    let (proto, chrome) = (folder.path().join("t.pftrace"), folder.path().join("t.json"));
    let [proto, chrome] = [&proto, &chrome].map(|path| path.to_str().unwrap());
    let document = json(&export(&[BUNDLE, "--perfetto", proto, "--chrome", chrome, "--json"]));
    let counts = &document["outputs"][0]["counts"];
    let count = |name: &str| counts[name].as_u64().unwrap();
    for name in ["tracks", "instants", "slices", "values", "allocs", "frees", "refilled_blocks"] {
        assert_eq!(counts[name], document["outputs"][1]["counts"][name], "{name}");
    }
    let text = trace_text();
    let lines = |name: &str| text.lines().filter(|line| line.contains(name)).count() as u64;
    assert_eq!(document["events"], text.lines().filter(|line| !line.starts_with('#')).count());
    assert_eq!(count("allocs") + count("refused"), lines(" mm_page_alloc: ") + lines("extfrag: "));
    assert_eq!(count("frees"), lines(" mm_page_free: "));
    assert_eq!(count("refilled_blocks"), lines("percpu_refill=1"));
    assert_eq!(count("drained_blocks"), lines(" mm_page_pcpu_drain: "));
    assert_eq!(count("markers"), lines(" tracing_mark_write: "));
    assert_eq!(count("bulks"), lines(" nearpage_bulk_done: "));
    let on_tracks = ["allocs", "frees", "refilled_blocks", "drained_blocks", "refused", "markers"];
    let all = on_tracks.map(count).iter().sum::<u64>() + 2 * count("bulks") + count("left_out");
    assert_eq!(all, document["events"].as_u64().unwrap());
    let written: serde_json::Value = serde_json::from_slice(&fs::read(chrome).unwrap()).unwrap();
    let objects = written["traceEvents"].as_array().unwrap().len();
    assert_eq!(document["outputs"][1]["counts"]["packets"], objects);
    decoded_by_perfetto(proto, counts);
}

fn trace_text() -> String {
    use std::io::Read;
    let unpacked = |bytes: &[u8]| {
        let mut whole = Vec::new();
        let mut decoder = ruzstd::decoding::StreamingDecoder::new(bytes).unwrap();
        decoder.read_to_end(&mut whole).unwrap();
        whole
    };
    let archive = unpacked(&fs::read(root().join(BUNDLE)).unwrap());
    for entry in tar::Archive::new(&archive[..]).entries().unwrap() {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().to_string_lossy().into_owned();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        if name.ends_with("trace.txt") {
            return String::from_utf8(content).unwrap();
        }
        if name.ends_with("trace.txt.zst") {
            return String::from_utf8(unpacked(&content)).unwrap();
        }
    }
    panic!("{BUNDLE} has no trace");
}

/// The definitions of the package `perfetto` find the same packets, tracks and slices.
fn decoded_by_perfetto(path: &str, counts: &serde_json::Value) {
    let python = std::env::var("NEARPAGE_PYTHON").unwrap_or("python3".into());
    let script = root().join("crates/nearpage-cli/tests/data/perfetto_counts.py");
    let module = Command::new(&python).args(["-c", "import perfetto"]).output();
    if !module.is_ok_and(|output| output.status.success()) {
        eprintln!("SKIPPED: decoding by the package perfetto (pip install perfetto protobuf)");
        return;
    }
    let output = Command::new(&python).arg(script).arg(path).output().unwrap();
    let found = json(&output);
    for (theirs, own) in [
        ("packets", "packets"),
        ("tracks", "tracks"),
        ("slices", "slices"),
        ("instants", "instants"),
        ("values", "values"),
        ("refills", "refills"),
        ("drains", "drains"),
        ("alloc", "allocs"),
        ("free", "frees"),
    ] {
        assert_eq!(found[theirs], counts[own], "{theirs}: {found}");
    }
    assert_eq!(found["open"], 0);
    assert_eq!(found.get("bulk").and_then(|bulk| bulk.as_u64()).unwrap_or(0), counts["bulks"]);
}

#[test]
fn a_trace_alone_in_any_form() {
    for name in ["trace-v6.dat", "trace-v7.dat", "perf.data.zst", "trace-v6.txt.zst"] {
        let trace = format!("crates/nearpage-trace/tests/binary/{name}");
        let output = export(&["--trace", &trace, "--chrome", "-"]);
        let document = json(&output);
        assert!(document["traceEvents"].as_array().unwrap().len() > 100, "{name}");
    }
}

#[test]
fn what_cannot_be_read_or_written_is_told() {
    let refused = |arguments: &[&str], code: i32, told: &str| {
        let output = export(arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {errors}");
        assert!(errors.contains(told), "{errors}");
    };
    refused(&[BUNDLE], 2, "<--perfetto <OUT|->|--chrome <OUT|->>");
    refused(&[BUNDLE, "--perfetto", "-", "--chrome", "-"], 2, "name the same output");
    refused(
        &[BUNDLE, "--perfetto", "/nonexistent/out"],
        1,
        "cannot write /nonexistent/out: No such file or directory (os error 2)\n",
    );
    refused(
        &[BUNDLE, "--chrome", "README.md/out"],
        1,
        "cannot write README.md/out: Not a directory (os error 20)\n",
    );
    refused(&[BUNDLE, "--perfetto", "/dev/full"], 1, "cannot write /dev/full: ");
    refused(&["--trace", "README.md", "--perfetto", "-"], 2, "README.md: byte ");
    refused(&["--trace", "/nonexistent", "--perfetto", "-"], 2, "/nonexistent: ");
    refused(&["docs", "--perfetto", "/dev/null"], 2, "docs: ");
    refused(&[BUNDLE, "--chrome", "-", "--json"], 2, "give the timeline a file");
    // No file is left of work that failed.
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    refused(&["--trace", "README.md", "--perfetto", out.to_str().unwrap()], 2, "README.md");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// Under whatever name.
#[test]
fn outputs_replace_no_input_and_not_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (bundle, link) = (at("bundle.tar.zst"), at("link"));
    fs::copy(root().join(BUNDLE), &bundle).unwrap();
    std::os::unix::fs::symlink("bundle.tar.zst", &link).unwrap();
    let before = fs::read(&bundle).unwrap();
    for arguments in [
        [&bundle, "--perfetto", &bundle],
        [&bundle, "--perfetto", &link],
        [&link, "--chrome", &at("./bundle.tar.zst")],
        ["--trace", &bundle, &format!("--chrome={link}")],
    ] {
        let output = export(&arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("it is the input"));
    }
    let same = export(&[&bundle, "--perfetto", &at("out"), "--chrome", &at("./out")]);
    assert_eq!(same.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&same.stderr).contains("name the same output"));
    assert_eq!(fs::read(&bundle).unwrap(), before);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    // A link stays one.
    std::os::unix::fs::symlink("target", at("later")).unwrap();
    fs::write(at("target"), "").unwrap();
    assert!(export(&[&bundle, "--chrome", &at("later")]).status.success());
    assert!(fs::symlink_metadata(at("later")).unwrap().is_symlink());
    assert!(fs::metadata(at("target")).unwrap().len() > 1000);
}

fn twin(folder: &std::path::Path, arguments: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_nearpage");
    let bundle = root().join(BUNDLE);
    Command::new(program)
        .current_dir(folder)
        .args(["trace", "twin"])
        .arg(bundle)
        .args(["--output", "twin"])
        .args(arguments)
        .output()
        .unwrap()
}

#[test]
fn a_twin_is_written_told_and_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let size = ["--cpus", "8", "--nodes", "4", "--hours", "0.0005", "--seed", "7", "--json"];
    let document = json(&twin(folder.path(), &size));
    assert_eq!((document["schema"].as_u64(), &document["output"]), (Some(1), &"twin".into()));
    assert_eq!(document["twin"]["cpus"], 8);
    assert!(document["apart"]["orders"].as_f64().unwrap() < 0.2 && document["beside"].is_null());
    let program = env!("CARGO_BIN_EXE_nearpage");
    let replayed = Command::new(program)
        .current_dir(folder.path())
        .args(["replay", "twin", "--json"])
        .output()
        .unwrap();
    assert_eq!(json(&replayed)["trace"]["allocs"], document["played"]["allocs"]);
    // It is there: it is not written over.
    let again = twin(folder.path(), &[]);
    assert_eq!(again.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&again.stderr).contains("twin: it is there already"));
}

#[test]
fn a_twin_beside_a_second_recording_tells_both_distances() {
    let folder = tempfile::tempdir().unwrap();
    let beside = root().join("bundles/q612-n4-asym.tar.zst");
    let told = twin(folder.path(), &["--hours", "0.0005", "--beside", beside.to_str().unwrap()]);
    let text = String::from_utf8(told.stdout).unwrap();
    assert!(text.contains("apart from recorded") && text.contains("beside"), "{text}");
    let lifetimes = text.lines().find(|line| line.starts_with("lifetimes")).unwrap();
    assert_eq!(lifetimes.split_whitespace().count(), 3, "{text}");
    fs::remove_dir_all(folder.path().join("twin")).unwrap();
    let wrong = [(["--nodes", "3"], "a multiple of its 2"), (["--hours", "0"], "more than 0 s")];
    for (arguments, said) in wrong {
        let refused = twin(folder.path(), &arguments);
        let message = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.status.code() == Some(2) && message.contains(said), "{message}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

fn summary(arguments: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_nearpage");
    let mut command = Command::new(program);
    command.current_dir(root()).args(["trace", "summary"]).args(arguments).output().unwrap()
}

/// The counts of a summary are those of the lines of the trace.
#[test]
fn a_summary_counts_what_the_trace_has() {
    let document = json(&summary(&[BUNDLE, "--json"]));
    let text = trace_text();
    let lines = |name: &str| text.lines().filter(|line| line.contains(name)).count() as u64;
    let requests = &document["requests"];
    let count = |name: &str| requests[name].as_u64().unwrap();
    assert_eq!(count("allocs"), lines(" mm_page_alloc: "));
    assert_eq!(count("frees"), lines(" mm_page_free: "));
    assert_eq!(count("alloc_freed") + count("alloc_only") + count("failed"), count("allocs"));
    assert_eq!(count("alloc_freed") + count("free_only"), count("frees"));
    let groups = document["groups"].as_array().unwrap();
    let sum = |name: &str| groups.iter().map(|group| group[name].as_u64().unwrap()).sum::<u64>();
    assert_eq!(sum("allocs") + sum("failed"), count("allocs"));
    assert_eq!(sum("frees"), count("frees"));
    assert_eq!(sum("freed"), count("alloc_freed"));
    let by_order = json(&summary(&[BUNDLE, "--by", "order", "--json"]));
    assert_eq!(by_order["requests"], document["requests"]);
    let shown = String::from_utf8(summary(&[BUNDLE, "--top", "1"]).stdout).unwrap();
    assert!(shown.contains("more (--top N, --json)"), "{shown}");
    let sites = String::from_utf8(summary(&[BUNDLE, "--by", "site"]).stdout).unwrap();
    assert!(sites.contains("no call chain was read"), "{sites}");
}

/// What `perf kmem stat --page` (perf 6.1) tells of the same file.
#[test]
fn counts_are_those_of_perf_kmem() {
    let file = "crates/nearpage-trace/tests/binary/perf.data.zst";
    let document = json(&summary(&[file, "--json"]));
    let requests = &document["requests"];
    for (name, told, kib) in [
        ("alloc", 276, 1104),
        ("free", 1, 4),
        ("alloc_freed", 0, 0),
        ("alloc_only", 276, 1104),
        ("free_only", 1, 4),
    ] {
        let is_total = ["alloc", "free"].contains(&name);
        let count = if is_total { format!("{name}s") } else { name.to_owned() };
        assert_eq!(requests[&count], told, "{name}");
        assert_eq!(requests[format!("{name}_pages")], kib / 4, "{name}");
    }
    // perf calls the second type reclaimable, as kernels before 3.19 numbered them: it is movable.
    assert_eq!(document["by_order_and_type"][0][0], 9);
    assert_eq!(document["by_order_and_type"][0][1], 267);
}

/// A trace without an event of the allocator says how one is recorded; one that lacks something, what.
#[test]
fn traces_that_tell_nothing_say_why() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace");
    let path = file.to_str().unwrap();
    fs::write(&file, " a-1  [000] d..1.  1.000000: sched_switch: prev=a\n").unwrap();
    let output = summary(&[path]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("record kmem:mm_page_alloc and kmem:mm_page_free"), "{text}");
    fs::write(&file, "> 0)    |  /* mm_page_free: page=1 pfn=0x2 order=0 */\n").unwrap();
    let output = summary(&[path]);
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("funcgraph-abstime and funcgraph-proc"), "{error}");
}

/// A `perf.data`, and a kernel that hides names, give addresses alone.
#[test]
fn addresses_are_named_by_symbols() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &str| {
        let path = folder.path().join(name);
        fs::write(&path, content).unwrap();
        path.display().to_string()
    };
    let trace = file(
        "perf.txt",
        "cc1 71 [001] 10.000001: kmem:mm_page_alloc: page=0x1 pfn=0x100 order=0 migratetype=1 gfp_flags=GFP_KERNEL\n\
         \tffffffff8127a0a1 [unknown] ([unknown])\n\tffffffff8127b0a1 [unknown] ([unknown])\n\n",
    );
    let names = "ffffffff8127a000 T __alloc_pages\nffffffff8127b000 T pte_alloc_one\n";
    let (right, hidden) = (file("right", names), file("hidden", "0000000000000000 T hidden\n"));
    let other = file("other", &names.replace("__alloc_pages", "tcp_ack"));
    let run = |arguments: &[&str]| {
        let program = env!("CARGO_BIN_EXE_nearpage");
        let output = Command::new(program).arg("trace").args(arguments).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let summary = ["summary", &trace, "--by", "site"];
    let with = |symbols: &str| run(&[&summary[..], &["--symbols", symbols]].concat());

    let (_, printed, _) = run(&summary);
    assert!(
        printed.contains("1 of 1 call chains are addresses without names: --symbols"),
        "{printed}"
    );
    let (_, printed, _) = with(&right);
    assert!(printed.contains("\npte_alloc_one ") && !printed.contains("call chains"), "{printed}");
    assert!(printed.contains(" lost ones unknown (perf script "), "{printed}");
    let (_, printed, _) = with(&other);
    assert!(printed.contains("1 of 1 call chains do not begin in the allocator"), "{printed}");
    let (code, _, message) = with(&hidden);
    assert!(code == Some(2) && message.contains("no function has an address"), "{message}");
    let (code, _, message) = run(&["summary", &trace, "--symbols", &right]);
    assert!(code == Some(2) && message.contains("--by site"), "{message}");

    let export = ["export", "--trace", &trace, "--chrome", "-"];
    let (_, addresses, _) = run(&export);
    assert!(addresses.contains(r#"["0xffffffff8127a0a1","0xffffffff8127b0a1"]"#), "{addresses}");
    let (_, named, _) = run(&[&export[..], &["--symbols", &right]].concat());
    assert!(named.contains(r#"["__alloc_pages","pte_alloc_one"]"#), "{named}");
}
