//! What the machine sent.

use serde_json::{Map, Value};

use super::RecordError;

/// Files that the machine sent, by name, in their order.
#[derive(Debug)]
pub struct Sent<'a>(Vec<(&'a str, &'a [u8])>);

impl<'a> Sent<'a> {
    /// Takes apart what was sent: each file after a line `=== NAME BYTES`, the last one named `end`.
    ///
    /// # Errors
    ///
    /// The end is missing.
    pub fn parse(sent: &'a [u8]) -> Result<Sent<'a>, RecordError> {
        let mut files = Vec::new();
        let mut rest = sent;
        while let Some((name, content, after)) = next(rest) {
            if name == "end" {
                return Ok(Sent(files));
            }
            files.push((name, content));
            rest = after;
        }
        Err(RecordError::Incomplete("the end".into()))
    }

    /// A file.
    ///
    /// # Errors
    ///
    /// It was not sent.
    pub fn file(&self, name: &str) -> Result<&'a [u8], RecordError> {
        let found = self.0.iter().find(|(of, _)| *of == name);
        found.map(|(_, content)| *content).ok_or_else(|| RecordError::Incomplete(name.to_owned()))
    }

    /// All files as a recording of `oracle/`: their names are paths.
    ///
    /// # Errors
    ///
    /// Something is missing.
    pub fn recording(&self) -> Result<Value, RecordError> {
        let mut recording = Map::new();
        for (path, content) in &self.0 {
            let text = String::from_utf8_lossy(content).replace('\r', "");
            insert(&mut recording, path, text.trim_end_matches('\n'));
        }
        for wanted in ["captures", "sys", "dmesg"] {
            if !recording.contains_key(wanted) {
                return Err(RecordError::Incomplete(wanted.into()));
            }
        }
        let kernel = kernel(&recording);
        recording.insert("kernel".into(), kernel.into());
        Ok(Value::Object(recording))
    }
}

/// The first file of what was sent: its name, its content, and what follows.
fn next(sent: &[u8]) -> Option<(&str, &[u8], &[u8])> {
    let rest = sent.strip_prefix(b"\n=== ")?;
    let end = rest.iter().position(|&byte| byte == b'\n')?;
    let (name, length) = std::str::from_utf8(&rest[..end]).ok()?.rsplit_once(' ')?;
    let (content, after) = rest[end + 1..].split_at_checked(length.parse().ok()?)?;
    Some((name, content, after))
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

    fn sent(files: &[(&str, &str)]) -> Vec<u8> {
        let file = |(name, text): &(&str, &str)| format!("\n=== {name} {}\n{text}", text.len());
        files.iter().map(file).collect::<String>().into_bytes()
    }

    #[test]
    fn files_become_entries() {
        let files = [
            ("captures/boot/zoneinfo", "Node 0, zone DMA\n\n"),
            ("captures/boot/sysctl_vm/min_free_kbytes", "67584\n"),
            ("sys/version", "Linux version 6.12.95+deb12-amd64 (x)\n"),
            ("dmesg/raw", "[ 0.0] a\n[ 0.1] b\n"),
            ("end", ""),
        ];
        let expected = json!({
            "kernel": "6.12",
            "captures": { "boot": {
                "zoneinfo": "Node 0, zone DMA",
                "sysctl_vm": { "min_free_kbytes": "67584" },
            } },
            "sys": { "version": "Linux version 6.12.95+deb12-amd64 (x)" },
            "dmesg": { "raw": "[ 0.0] a\n[ 0.1] b" },
        });
        let whole = sent(&files);
        assert_eq!(Sent::parse(&whole).unwrap().recording().unwrap(), expected);
        for cut in [0, 10, whole.len() - 1] {
            let error = Sent::parse(&whole[..cut]).unwrap_err().to_string();
            assert_eq!(error, "the machine did not send the end");
        }
    }

    #[test]
    fn a_bundle_is_bytes() {
        let sent = sent(&[("bundle", "\n=== end 0\nx"), ("end", "")]);
        let sent = Sent::parse(&sent).unwrap();
        assert_eq!(sent.file("bundle").unwrap(), b"\n=== end 0\nx");
        let error = sent.file("trace").unwrap_err().to_string();
        assert_eq!(error, "the machine did not send trace");
    }
}
