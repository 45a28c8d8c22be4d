//! What the machine sent, as a recording.

use serde_json::{Map, Value};

use super::RecordError;

const MARK: &str = "=== ";

/// Makes the recording of what was sent: files, each after a line `=== PATH`, up to `=== end`.
pub fn recording(sent: &str) -> Result<Value, RecordError> {
    let sent = sent.replace('\r', "");
    let mut recording = Map::new();
    let mut is_whole = false;
    for part in format!("\n{sent}").split(&format!("\n{MARK}")).skip(1) {
        let (path, content) = part.split_once('\n').unwrap_or((part, ""));
        is_whole |= path == "end";
        if path != "end" {
            insert(&mut recording, path, content.trim_end_matches('\n'));
        }
    }
    if !is_whole {
        return Err(RecordError::Incomplete("the end"));
    }
    for wanted in ["captures", "sys", "dmesg"] {
        if !recording.contains_key(wanted) {
            return Err(RecordError::Incomplete(wanted));
        }
    }
    let kernel = kernel(&recording);
    recording.insert("kernel".into(), kernel.into());
    Ok(Value::Object(recording))
}

/// Puts a text at `a/b/c` of nested objects.
fn insert(into: &mut Map<String, Value>, path: &str, content: &str) {
    match path.split_once('/') {
        None => drop(into.insert(path.into(), content.into())),
        Some((first, rest)) => {
            let entry = into.entry(first).or_insert_with(|| Map::new().into());
            if let Value::Object(entries) = entry {
                insert(entries, rest, content);
            }
        }
    }
}

/// `6.12` of `Linux version 6.12.95+deb12-amd64`.
fn kernel(recording: &Map<String, Value>) -> String {
    let version = recording["sys"]["version"].as_str().unwrap_or_default();
    let release = version.split_whitespace().nth(2).unwrap_or_default();
    release.split('.').take(2).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn files_become_entries() {
        let sent = "noise\r\n\n=== captures/boot/zoneinfo\r\nNode 0, zone DMA\r\n\n\n\
                    === captures/boot/sysctl_vm/min_free_kbytes\n67584\n\n\
                    === sys/version\nLinux version 6.12.95+deb12-amd64 (x)\n\n\
                    === dmesg/raw\n[ 0.0] a\n[ 0.1] b\n\n=== end\n";
        let expected = json!({
            "kernel": "6.12",
            "captures": { "boot": {
                "zoneinfo": "Node 0, zone DMA",
                "sysctl_vm": { "min_free_kbytes": "67584" },
            } },
            "sys": { "version": "Linux version 6.12.95+deb12-amd64 (x)" },
            "dmesg": { "raw": "[ 0.0] a\n[ 0.1] b" },
        });
        assert_eq!(recording(sent).unwrap(), expected);
        let cut = sent.replace("=== end", "");
        assert_eq!(recording(&cut).unwrap_err().to_string(), "the machine did not send the end");
    }
}
