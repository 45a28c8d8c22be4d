//! What strangers send commands no terminal and reads no file of this machine, and nobody goes around the doors.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use assert_cmd::Command;

use super::tidy::{files, root};

/// What would command a terminal, as C0, as C1 and by the direction of text, with a word to find it by.
const HOSTILE: &str = "hostile\u{1b}[31mX\u{1b}c\u{9b}2J\u{202e}\u{7f}";

/// The folder of a machine whose every text is hostile that may have any.
fn hostile_root(folder: &Path) {
    let write = |path: &str, text: &str| {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("sys/devices/system/node/online", "0\n");
    write("sys/devices/system/node/node0/cpulist", "0\n");
    write("sys/devices/system/node/node0/distance", "10\n");
    write("sys/devices/system/cpu/online", "0\n");
    write("proc/meminfo", "MemTotal: 400000 kB\n");
    write("proc/sys/kernel/osrelease", &format!("6.1.0-{HOSTILE}\n"));
    write("proc/version", &format!("Linux version 6.1.0-{HOSTILE} ({HOSTILE})\n"));
    let zone = "pages free 700\n min 10\n low 20\n high 30\n spanned 90000\n present 90000\n managed 90000\n";
    write("proc/zoneinfo", &format!("Node 0, zone   Normal\n {zone} start_pfn: 1\n"));
}

fn run(arguments: &[&str]) -> (String, String) {
    let mut command = Command::cargo_bin("nearpage").unwrap();
    let output = command.args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("outputs are text");
    (text(output.stdout), text(output.stderr))
}

fn is_raw(text: &str) -> bool {
    text.contains(nearpage_machine::commands_terminal)
}

#[test]
fn hostile_texts_are_escaped_in_every_output() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("machine");
    hostile_root(&path);
    let path = path.to_str().unwrap();
    let scenario = folder.path().join("s.toml");
    fs::write(&scenario, format!("name = {HOSTILE:?}\n[{}]\n", "hostile\u{9b}")).unwrap();
    let scenario = scenario.to_str().unwrap();
    let log = folder.path().join("log");
    fs::write(
        &log,
        format!("[ 1.0] {HOSTILE}: page allocation failure: order:4, mode:0x40cc0(GFP_KERNEL)\n"),
    )
    .unwrap();
    let log = log.to_str().unwrap();
    let named = folder.path().join(HOSTILE);
    fs::write(&named, HOSTILE).unwrap();
    let named = named.to_str().unwrap();
    let metrics = folder.path().join("m.prom");
    let metrics = metrics.to_str().unwrap();
    let page = folder.path().join("page.html");
    let page = page.to_str().unwrap();
    let mut seen = 0;
    for arguments in [
        &["topo", "--sysroot", path][..],
        &["topo", "--sysroot", path, "--json"],
        &["top", "--sysroot", path, "--once"],
        &["top", "--sysroot", path, "--json", "--count", "1"],
        &["top", "--sysroot", path, "--csv", "--count", "1"],
        &["doctor", "--sysroot", path],
        &["doctor", "--sysroot", path, "--json"],
        &["verify", path],
        &["verify", path, "--json"],
        &["export", "--sysroot", path, "--textfile", "-"],
        &["export", "--sysroot", path, "--textfile", metrics],
        &["lab", "run", scenario],
        &["lab", "run", scenario, "--json"],
        &["explain", log],
        &["explain", log, "--json"],
        &["explain", log, "--report", page],
        &["topo", "--topology", named],
        &["replay", named],
        &["verify", named],
        &["proc", named, path],
        &["proc", HOSTILE, path],
    ] {
        let (out, err) = run(arguments);
        assert!(!is_raw(&out), "{arguments:?}: {out:?}");
        // clap shows the words of its own user as they are; no argument here is wrong.
        assert!(!is_raw(&err), "{arguments:?}: {err:?}");
        seen += usize::from(out.contains("hostile") || err.contains("hostile"));
    }
    for file in [metrics, page] {
        assert!(!is_raw(&fs::read_to_string(file).unwrap_or_default()), "{file}");
    }
    // The harness would not fail if nothing of it were shown.
    assert!(seen >= 10, "only {seen} outputs show a hostile text at all");
    assert!(is_raw(HOSTILE));
}

#[test]
fn a_folder_reads_no_file_of_this_machine() {
    let outer = tempfile::tempdir().unwrap();
    let secret = outer.path().join("secret");
    fs::write(&secret, "topsecret\n").unwrap();
    for link in [
        "proc/sys/kernel/osrelease",
        "proc/meminfo",
        "proc/zoneinfo",
        "sys/devices/system/node/online",
    ] {
        for target in
            [secret.as_path(), Path::new("../../../../../../../../../../../../../../etc/passwd")]
        {
            let folder = tempfile::tempdir().unwrap();
            hostile_root(folder.path());
            fs::remove_file(folder.path().join(link)).unwrap();
            symlink(target, folder.path().join(link)).unwrap();
            let path = folder.path().to_str().unwrap();
            for command in [
                &["top", "--once", "--sysroot", path][..],
                &["doctor", "--sysroot", path],
                &["topo", "--sysroot", path],
                &["verify", path],
            ] {
                let (out, err) = run(command);
                for text in [out, err] {
                    assert!(
                        !text.contains("topsecret") && !text.contains("root:"),
                        "{command:?} {link}: {text}"
                    );
                }
            }
        }
    }
}

/// Words that only a door may have, each with the files that are one.
const DOORS: [(&str, &[&str]); 6] = [
    ("tar::Archive::new", &["nearpage-machine/src/packing.rs"]),
    ("MultiGzDecoder::new", &["nearpage-machine/src/packing.rs"]),
    ("MultiBzDecoder::new", &["nearpage-machine/src/packing.rs"]),
    // Chunks of trace.dat announce their length, and are unpacked to no more.
    (
        "StreamingDecoder::new",
        &["nearpage-machine/src/packing.rs", "nearpage-trace/src/binary/trace_dat.rs"],
    ),
    // Bytes, not text: a bundle, and a timeline.
    (
        "io::stdout()",
        &[
            "nearpage-cli/src/commands.rs",
            "nearpage-cli/src/commands/failure.rs",
            "nearpage-cli/src/commands/record.rs",
            "nearpage-cli/src/commands/trace.rs",
            "nearpage-cli/src/commands/top.rs",
            "nearpage-top/src/terminal.rs",
        ],
    ),
    ("println!", &[]),
];

#[test]
fn nobody_goes_around_a_door() {
    let folders = [
        "machine", "bundle", "trace", "replay", "lab", "report", "watch", "top", "explain",
        "doctor", "cli",
    ];
    let mut found = [0; DOORS.len()];
    for folder in folders {
        let folder = root().join(format!("crates/nearpage-{folder}/src"));
        for path in files(&folder, ".rs") {
            let text = fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
            let is_test = path.ends_with("tests.rs");
            for ((word, doors), found) in DOORS.iter().zip(&mut found) {
                let uses = code
                    .lines()
                    .any(|line| !line.trim_start().starts_with("//") && line.contains(word));
                if uses && !is_test {
                    let is_door = doors.iter().any(|door| path.ends_with(door));
                    assert!(is_door, "{}: {word} goes around its door", path.display());
                    *found += 1;
                }
            }
        }
    }
    for ((word, doors), found) in DOORS.iter().zip(found) {
        assert_eq!(found, doors.len(), "{word}: a door is listed that there is not");
    }
}
