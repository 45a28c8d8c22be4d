//! All kinds of paths: bundles and roots, as folders and packed; oracles; this machine.

use std::io::Write;
use std::path::{Path, PathBuf};

use super::{json, oracle, recording, run, shown, stdout, unpacked, write};

/// Unpacks a recorded bundle into a folder.
pub fn bundle_folder(below: &Path) -> PathBuf {
    let packed = std::fs::read(oracle().join("bundles/q612-memless2.tar.zst")).unwrap();
    let decoder = ruzstd::decoding::StreamingDecoder::new(&packed[..]).unwrap();
    tar::Archive::new(decoder).unpack(below).unwrap();
    below.join("q612-memless2")
}

/// A tar of a folder, whose files stand below `top` in it.
fn tar_of(folder: &Path, top: &str) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    builder.append_dir_all(top, folder).unwrap();
    builder.into_inner().unwrap()
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

fn zstd(content: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(content, ruzstd::encoding::CompressionLevel::Fastest)
}

#[test]
fn bundles_are_folders_and_tars() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = bundle_folder(folder.path());
    // A trace is not read, packed or not.
    std::fs::write(bundle.join("trace.txt"), "no trace\n").unwrap();
    let predicted = stdout(&["topo", "--bundle", &shown(&bundle), "--format", "json"]);
    let document: serde_json::Value = serde_json::from_str(&predicted).unwrap();
    assert_eq!(
        (&document["capture"], &document["model"]),
        (&"before".into(), &"linux-6.12".into())
    );
    assert_eq!(document["kernel"], "6.12.95+deb12-amd64");
    assert_eq!(document["min_free_kbytes"], 48_452);
    let flat = tar_of(&bundle, "");
    let deep = tar_of(&bundle, "q612-memless2");
    let packed: [(&str, Vec<u8>); 5] = [
        ("flat.tar", flat.clone()),
        ("deep.tar", deep.clone()),
        ("flat.tar.gz", gzip(&flat)),
        ("deep.tar.zst", zstd(&deep)),
        ("deep.tar.gz", gzip(&deep)),
    ];
    for (name, content) in packed {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        assert_eq!(stdout(&["topo", "--bundle", &shown(&path), "--format", "json"]), predicted);
        let verified = stdout(&["verify", "--strict", &shown(&path)]);
        assert!(verified.contains(": fallback order 4/4; boot-time 447/447\n"), "{verified}");
    }
    let after = ["--capture", "after", "--format", "json"];
    let document = json(&[&["topo", "--bundle", &shown(&bundle)], &after[..]].concat());
    assert_eq!(document["capture"], "after");
}

/// Every format of a recorded machine is that of its copy of /sys and /proc, as far as both have it.
#[test]
fn recordings_have_every_format() {
    let path = shown(&root("linux-6.12-memoryless"));
    for format in ["numactl", "dot", "hwloc"] {
        let of_bundle = stdout(&["topo", "--bundle", &path, "--format", format]);
        assert_eq!(
            of_bundle,
            stdout(&["topo", "--sysroot", &path, "--format", format]),
            "{format}"
        );
    }
    let text = |source: &str| {
        let arguments = ["topo", source, &path, "--model", "linux-6.12", "--format", "text"];
        stdout(&arguments)
    };
    let (of_bundle, of_copy) = (text("--bundle"), text("--sysroot"));
    let tables = |text: &str| text[text.find("\nNodes\n").unwrap()..].to_owned();
    assert_eq!(tables(&of_bundle), tables(&of_copy));
    assert!(of_bundle.starts_with(&format!("Machine   {path}, capture root; pages of 4 KiB; ")));
    assert!(!of_bundle.contains("Storage") && !of_copy.contains("Storage"), "{of_copy}");
    // Nodes whose memory only the zones tell.
    let mut document = unpacked(&recording("n2-2g-4c-6.12"));
    let whole = text_of(&document, "numactl");
    for node in ["node0", "node1"] {
        document["sys"][node].as_object_mut().unwrap().remove("meminfo");
    }
    let sizes = |text: &str| -> Vec<String> {
        text.lines().filter(|line| line.contains(" size: ")).map(String::from).collect()
    };
    assert_eq!(sizes(&text_of(&document, "numactl")), sizes(&whole));
    assert_eq!(sizes(&whole).len(), 2);
}

fn text_of(document: &serde_json::Value, format: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), "box.json", document);
    stdout(&["topo", "--bundle", &path, "--format", format])
}

/// A pipe cannot be read twice or from its end.
#[test]
fn recordings_come_from_standard_input_too() {
    let path = oracle().join("bundles/q612-memless2.tar.zst");
    let piped = |arguments: &[&str]| {
        let mut command = assert_cmd::Command::new(assert_cmd::cargo::cargo_bin!("nearpage"));
        let output = command.args(arguments).pipe_stdin(&path).unwrap().output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let path = shown(&path);
    let predicted = ["topo", "--format", "json", "--bundle"];
    assert_eq!(
        piped(&[&predicted[..], &["-"]].concat()),
        stdout(&[&predicted[..], &[&path]].concat())
    );
    let verified = piped(&["verify", "-"]);
    assert_eq!(verified, stdout(&["verify", &path]).replace(&path, "-"));
    let (code, _, stderr) = run(&["verify", "-", "-"]);
    assert_eq!(code, 2);
    assert_eq!(stderr, "nearpage: standard input (-) is given again, expected it once\n");
}

#[test]
fn oracles_are_plain_or_packed() {
    let folder = tempfile::tempdir().unwrap();
    let whole = recording("n2-cxl50-6.12");
    let predicted = stdout(&["topo", "--bundle", &whole, "--format", "json"]);
    let plain = write(folder.path(), "plain.json", &unpacked(&whole));
    assert_eq!(stdout(&["topo", "--bundle", &plain, "--format", "json"]), predicted);
    let content = std::fs::read(&plain).unwrap();
    let path = folder.path().join("packed.json.gz");
    std::fs::write(&path, gzip(&content)).unwrap();
    assert_eq!(stdout(&["topo", "--bundle", &shown(&path), "--format", "json"]), predicted);
}

#[test]
fn without_restored_settings_boot_is_looked_at() {
    let mut document = unpacked(&recording("n2-cxl50-6.12"));
    document["captures"].as_object_mut().unwrap().remove("restored");
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), "boot.json", &document);
    assert_eq!(json(&["topo", "--bundle", &path, "--format", "json"])["capture"], "boot");
}

fn root(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

#[test]
fn roots_are_folders_and_tars() {
    for (name, model) in
        [("linux-6.12-memoryless", "linux-6.12"), ("linux-6.1-movable", "linux-6.1")]
    {
        let folder = shown(&root(name));
        // The copy does not tell its version.
        let verified = stdout(&["verify", "--model", model, &folder]);
        assert!(verified.contains("; linux-"), "{verified}");
        let predicted = stdout(&["topo", "--bundle", &folder, "--model", model]);
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("root.tar.zst");
        std::fs::write(&path, zstd(&tar_of(&root(name), "box"))).unwrap();
        assert_eq!(stdout(&["topo", "--bundle", &shown(&path), "--model", model]), predicted);
    }
}

/// A kernel that is not modelled: the nearest model is used and named, and unknown keys do not disturb.
#[test]
fn other_kernels_get_the_nearest_model() {
    let folder = tempfile::tempdir().unwrap();
    let write = |path: &str, content: &str| {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    };
    let zoneinfo = include_str!("../../../nearpage/tests/data/zoneinfo-6.18.txt");
    write(
        "proc/zoneinfo",
        &zoneinfo.replace("        spanned", "        news     7\n        spanned"),
    );
    write("proc/version", "Linux version 6.19.3 (builder@box) #1 SMP\n");
    write("proc/sys/vm/min_free_kbytes", "67584\n");
    write("sys/devices/system/node/online", "0\n");
    write("sys/devices/system/node/node0/cpulist", "0-1\n");
    write("sys/devices/system/node/node0/distance", "10\n");
    write("sys/devices/system/cpu/online", "0-1\n");
    let path = shown(folder.path());
    let (code, stdout, stderr) = run(&["topo", "--bundle", &path]);
    assert_eq!(code, 0, "{stderr}");
    let model = "nearpage: capture root of 6.19.3; model linux-6.18, another kernel\n";
    assert_eq!(stderr, format!("{model}nearpage: nothing that this kernel printed differs\n"));
    assert!(stdout.contains("              high_max: "));
    let (code, stdout, stderr) = run(&["verify", &path]);
    assert_eq!(code, 0, "{stdout}{stderr}");
    assert!(stdout.contains(": linux-6.18 (6.19.3): watermarks "), "{stdout}");
    assert!(stdout.contains("; linux-6.18 is another kernel, but nothing differs"), "{stdout}");
    // The least and the largest high of each pageset are compared where the kernel prints them.
    let wrong = zoneinfo.replace("high_max: 240", "high_max: 241");
    write("proc/zoneinfo", &wrong);
    let (code, stdout, _) = run(&["verify", &path]);
    assert_eq!(code, 1);
    assert!(stdout.contains("; linux-6.18 is another kernel: 2 fields differ"), "{stdout}");
}

#[test]
fn this_machine_is_predicted() {
    let document = json(&["topo", "--bundle", "/", "--format", "json"]);
    assert_eq!(document["capture"], "root");
    assert!(document["model"].as_str().unwrap().starts_with("linux-6."));
    assert!(!document["zones"].as_array().unwrap().is_empty());
    let (code, stdout, stderr) = run(&["verify", "/"]);
    // Whether a kernel that is not modelled agrees is not ours to say.
    assert!(code < 2, "{stdout}{stderr}");
    assert!(stdout.starts_with("/: linux-6."), "{stdout}");
}
