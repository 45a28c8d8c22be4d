//! Recordings that cannot be read: which place the message names, and that the rest is done.

use serde_json::{Value, json};

use super::inputs::bundle_folder;
use super::{recording, run, shown, unpacked, write};

/// The message of a recording that `topo` refuses, without the recording's name.
fn refusal(path: &str) -> String {
    let (code, stdout, stderr) = run(&["topo", "--bundle", path]);
    assert_eq!((code, stdout.as_str()), (2, ""), "{stderr}");
    stderr.replace(path, "BOX").trim_start_matches("nearpage: ").trim_end().into()
}

fn changed(change: impl FnOnce(&mut Value)) -> String {
    let mut document = unpacked(&recording("n2-2g-4c-6.12"));
    change(&mut document);
    let folder = tempfile::tempdir().unwrap();
    refusal(&write(folder.path(), "box.json", &document))
}

fn written(content: &[u8]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("box");
    std::fs::write(&path, content).unwrap();
    refusal(&shown(&path))
}

#[test]
fn damaged_json_names_line_and_column() {
    assert_eq!(written(b"{\n  \"captures\": {\n    \"boot\" 5\n"), "BOX:3:12: expected `:`");
    assert_eq!(written(b"{\"sys\": {}\n}"), "BOX: no captures, expected captures.NAME");
    let zone = json!({ "node": 0, "zone": "Low" });
    let document = json!({ "captures": { "boot": { "parsed": { "zones": [zone] } } } });
    assert_eq!(
        written(document.to_string().as_bytes()),
        "BOX:1:63: found zone \"Low\", expected DMA, DMA32, Normal, Movable or Device"
    );
    let text = unpacked(&recording("n1-2g-1c-6.1")).to_string();
    let half = written(&text.as_bytes()[..text.len() / 2]);
    assert!(half.starts_with("BOX:1:"), "{half}");
    assert!(half.contains("EOF while parsing"), "{half}");
}

#[test]
fn damaged_texts_in_json_name_line_and_column() {
    let text = |change: fn(&str) -> String| {
        changed(|document| {
            let zoneinfo = &mut document["captures"]["restored"]["zoneinfo"];
            *zoneinfo = json!(change(zoneinfo.as_str().unwrap()));
        })
    };
    let message = text(|text| text.replacen("managed  3840", "managed  384o", 1));
    let (place, problem) = message.split_once(": found ").unwrap();
    assert!(place.starts_with("BOX: captures.restored.zoneinfo:"), "{message}");
    assert!(place.ends_with(":18"), "{message}");
    assert_eq!(problem, "\"384o\", expected a number of pages");
    assert_eq!(
        text(|text| text.replacen("Node 0, zone      DMA", "Node O, zone      DMA", 1)),
        "BOX: captures.restored.zoneinfo:1:6: found \"O\", expected a heading such as Node 0, zone \
         Normal"
    );
    assert_eq!(
        changed(|document| document["sys"]["node1"]["distance"] = json!("20 1O")),
        "BOX: sys.node1.distance:1:4: found \"1O\", expected a distance from 10 to 255"
    );
    assert_eq!(
        changed(|document| {
            document["captures"]["restored"]["sysctl_vm"]["min_free_kbytes"] = json!("much");
        }),
        "BOX: captures.restored.sysctl_vm.min_free_kbytes:1:1: found \"much\", expected a number"
    );
}

#[test]
fn incomplete_machines_say_what_is_missing() {
    let without = |key: &str| {
        changed(|document| {
            for zone in document["captures"]["restored"]["parsed"]["zones"].as_array_mut().unwrap()
            {
                zone.as_object_mut().unwrap().remove(key);
            }
        })
    };
    assert_eq!(
        without("managed"),
        "BOX: captures.restored.zoneinfo: zone DMA of node 0 tells no size, expected managed and \
         present of each zone"
    );
    assert_eq!(
        changed(|document| document["sys"] = json!({})),
        "BOX: has no sys/devices/system/node and no sys/devices/system/cpu, expected the root of a copy \
         of /sys and /proc"
    );
    assert_eq!(
        changed(|document| {
            let restored = document["captures"]["restored"].as_object_mut().unwrap();
            restored.remove("parsed");
            restored.remove("zoneinfo");
        }),
        "BOX: proc/zoneinfo: no zones, expected zones: /proc/zoneinfo, or what was read of it"
    );
    assert_eq!(
        changed(|document| {
            document["captures"]["restored"]["parsed"]["zones"][0]["node"] = json!(7);
        }),
        "BOX: captures.restored.zoneinfo: zone DMA of node 7 is on a node that is not online, \
         expected zones of online nodes"
    );
    assert_eq!(
        changed(|document| {
            document["captures"]["restored"]["parsed"]["zones"][0]["managed"] = json!(u64::MAX);
        }),
        "BOX: captures.restored.zoneinfo: zone DMA of node 0 tells a size that no machine has, \
         expected up to 4 PiB of memory"
    );
}

#[test]
fn damaged_bundles_name_file_line_and_column() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = bundle_folder(folder.path());
    let damage = |file: &str, from: &str, to: &str| {
        let path = bundle.join(file);
        let whole = std::fs::read_to_string(&path).unwrap();
        assert!(whole.contains(from), "{file}");
        std::fs::write(&path, whole.replacen(from, to, 1)).unwrap();
        let message = refusal(&shown(&bundle));
        std::fs::write(&path, whole).unwrap();
        message
    };
    let message = damage("before/zoneinfo", "        boost    0", "        boost    nil");
    assert!(message.starts_with("BOX/before/zoneinfo:"), "{message}");
    assert!(message.ends_with(":18: found \"nil\", expected a number of pages"), "{message}");
    let message = damage("before/sysfs", "node0/cpulist:0-1", "node0/cpulist:0=1");
    assert_eq!(
        message,
        "BOX/before/sysfs:7: /sys/devices/system/node/node0/cpulist:1:1: found \"0=1\", expected an \
         id such as 0 or a range such as 0-3"
    );
    let message = damage("before/sysctl", "vm.min_free_kbytes = ", "vm.min_free_kbytes=");
    assert!(message.starts_with("BOX/before/sysctl:22:1: found "), "{message}");
    assert!(
        message.ends_with("expected a setting such as vm.min_free_kbytes = 67584"),
        "{message}"
    );
    let message = damage("meta.json", "\"arch\"", "arch");
    assert!(message.starts_with("BOX/meta.json:"), "{message}");
    std::fs::remove_file(bundle.join("before/zoneinfo")).unwrap();
    assert!(run(&["topo", "--bundle", &shown(&bundle)]).2.contains("has no capture restored"));
}

/// A capture of which nothing can be compared is a failure, not one that agrees.
#[test]
fn a_capture_without_zones_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = bundle_folder(folder.path());
    let verified = || run(&["verify", &shown(&bundle)]);
    assert_eq!(verified().0, 0);
    let bundle_shown = shown(&bundle);
    std::fs::write(bundle.join("after/zoneinfo"), "").unwrap();
    let empty = verified();
    std::fs::remove_file(bundle.join("after/zoneinfo")).unwrap();
    for ((code, stdout, stderr), problem) in [
        (empty, "/after/zoneinfo: has no bytes, as tar leaves"),
        (verified(), ": after: proc/zoneinfo: no zones, expected "),
    ] {
        assert_eq!(code, 2, "{stderr}");
        assert!(stderr.contains(&format!("nearpage: {bundle_shown}{problem}")), "{stderr}");
        assert!(stderr.ends_with("nearpage: 1 recordings or captures could not be read\n"));
        assert!(stdout.contains(": linux-6.12 ("), "the others are compared: {stdout}");
    }
    let mut document = unpacked(&recording("n2-2g-4c-6.12"));
    let boot = document["captures"]["boot"].as_object_mut().unwrap();
    boot.remove("parsed");
    boot.remove("zoneinfo");
    let path = write(folder.path(), "box.json", &document);
    let (code, _, stderr) = run(&["verify", &path]);
    assert_eq!(code, 2);
    assert!(stderr.contains("proc/zoneinfo: no zones, expected zones"), "{stderr}");
}

#[test]
fn what_is_no_recording_is_named() {
    let expected = "is no recording, expected a bundle (a folder with meta.json, or a tar of one), an \
                    oracle JSON, or a folder or tar with proc/ and sys/";
    assert_eq!(written(b"hello"), format!("BOX:1:1: {expected}"));
    assert_eq!(written(b""), format!("BOX:1:1: {expected}"));
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(refusal(&shown(folder.path())), format!("BOX: {expected}"));
    assert!(refusal("nowhere").starts_with("BOX: No such file"));
    let packed = std::fs::read(recording("n1-2g-1c-6.1")).unwrap();
    assert!(written(&packed[..packed.len() / 2]).starts_with("BOX: zstd: "));
}

#[test]
fn the_rest_is_verified_before_a_failure_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let broken = folder.path().join("broken.json");
    std::fs::write(&broken, "{\n \"captures\": nothing }").unwrap();
    let broken = shown(&broken);
    let mut document = unpacked(&recording("n2-2g-4c-6.12"));
    let info = document["module"]["info"].as_str().unwrap();
    document["module"]["info"] = json!(info.replacen("min=", "min=x", 1));
    let partly = write(folder.path(), "partly.json", &document);
    let good = recording("n1-2g-1c-6.1");
    let (code, stdout, stderr) = run(&["verify", &broken, &partly, &good]);
    assert_eq!(code, 2);
    assert!(stderr.contains(&format!("nearpage: {broken}:2:15: expected ")), "{stderr}");
    assert!(stderr.contains(&format!("nearpage: {partly}: module.info:")), "{stderr}");
    assert!(stderr.ends_with("nearpage: 2 recordings or captures could not be read\n"), "{stderr}");
    let begins =
        |path: &str| stdout.lines().any(|line| line.starts_with(&format!("{path}: linux-")));
    assert!(begins(&good) && begins(&partly) && !begins(&broken), "{stdout}");
    let (code, stdout, _) = run(&["verify", "--json", &broken, &good]);
    assert_eq!(code, 2);
    let report: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(report[0]["path"], broken);
    assert!(report[0]["error"].as_str().unwrap().contains(":2:15: "));
    assert_eq!(report[1]["path"], good);
}
