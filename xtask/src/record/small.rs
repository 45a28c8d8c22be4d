//! A bundle packed small, for keeping: the recorder packs fast, on the machine that it records.
//!
//! What is packed within the bundle is unpacked first, so that all of it is packed once.

use std::io::{self, Read, Write};
use std::process::{Command, Stdio};

use ruzstd::decoding::StreamingDecoder;
use serde_json::Value;

use super::RecordError;

const PACKER: &str = "zstd";
const SUFFIX: &str = ".zst";

/// Packs a bundle anew.
///
/// # Errors
///
/// It is damaged or lacks events, or there is no program that packs.
pub fn packed(bundle: &[u8]) -> Result<Vec<u8>, RecordError> {
    let (plain, lost) =
        plain(bundle).map_err(|_| RecordError::Incomplete("a whole bundle".into()))?;
    if lost > 0 {
        return Err(RecordError::LostEvents(lost));
    }
    let mut command = Command::new(PACKER);
    command.args(["-19", "--quiet", "--stdout"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let missing = |_| RecordError::Missing {
        what: PACKER.into(),
        places: "the PATH".into(),
        remedy: "it comes with Debian's zstd".into(),
    };
    let mut packer = command.spawn().map_err(missing)?;
    let mut input = packer.stdin.take().expect("it was piped");
    let output = std::thread::scope(|scope| {
        let writing = scope.spawn(move || input.write_all(&plain));
        let output = packer.wait_with_output()?;
        writing.join().expect("writing does not panic")?;
        Ok(output.stdout)
    });
    output.map_err(|error: io::Error| RecordError::File { path: PACKER.into(), error })
}

/// Checks that a bundle has all events, and packs nothing.
///
/// # Errors
///
/// It lacks some, or is damaged.
pub fn check(bundle: &[u8]) -> Result<(), RecordError> {
    let lost = || -> io::Result<u64> {
        for entry in tar::Archive::new(unpacked(bundle)?).entries()? {
            let mut entry = entry?;
            if entry.path()?.ends_with("meta.json") {
                let mut content = Vec::new();
                entry.read_to_end(&mut content)?;
                return lost_of(&content);
            }
        }
        Err(io::Error::other("no meta.json"))
    };
    match lost() {
        Ok(0) => Ok(()),
        Ok(lost) => Err(RecordError::LostEvents(lost)),
        Err(_) => Err(RecordError::Incomplete("a whole bundle".into())),
    }
}

fn lost_of(meta: &[u8]) -> io::Result<u64> {
    let lost = serde_json::from_slice::<Value>(meta)?["lost_events"].as_u64();
    lost.ok_or_else(|| io::Error::other("does not tell how many events were lost"))
}

/// The archive, and all that it has, unpacked; and how many events were lost.
fn plain(bundle: &[u8]) -> io::Result<(Vec<u8>, u64)> {
    let mut archive = tar::Archive::new(unpacked(bundle)?);
    let mut plain = tar::Builder::new(Vec::new());
    let mut lost = None;
    for entry in archive.entries()? {
        let mut entry = entry?;
        let path = entry.path()?.to_string_lossy().into_owned();
        let mut header = entry.header().clone();
        let mut content = Vec::new();
        match path.strip_suffix(SUFFIX) {
            Some(_) => _ = unpacked(&mut entry)?.read_to_end(&mut content)?,
            None => _ = entry.read_to_end(&mut content)?,
        }
        if path.ends_with("/meta.json") {
            lost = Some(lost_of(&content)?);
        }
        header.set_size(content.len() as u64);
        plain.append_data(&mut header, path.strip_suffix(SUFFIX).unwrap_or(&path), &*content)?;
    }
    let lost = lost.ok_or_else(|| io::Error::other("no meta.json"))?;
    Ok((plain.into_inner()?, lost))
}

fn unpacked<'a>(packed: impl Read + 'a) -> io::Result<impl Read + 'a> {
    StreamingDecoder::new(packed).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;

    fn bundle(meta: &str) -> Vec<u8> {
        let pack = |content: &[u8]| compress_to_vec(content, CompressionLevel::Fastest);
        let mut archive = tar::Builder::new(Vec::new());
        let trace = pack(b"trace");
        for (name, content) in [("b/meta.json", meta.as_bytes()), ("b/trace.txt.zst", &trace)] {
            let mut header = tar::Header::new_ustar();
            header.set_mode(0o644);
            header.set_size(content.len() as u64);
            archive.append_data(&mut header, name, content).unwrap();
        }
        pack(&archive.into_inner().unwrap())
    }

    #[test]
    fn what_is_packed_within_is_packed_once() {
        let (plain, lost) = plain(&bundle(r#"{"lost_events": 0}"#)).unwrap();
        assert_eq!(lost, 0);
        let mut files = Vec::new();
        for entry in tar::Archive::new(&*plain).entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            files.push((entry.path().unwrap().display().to_string(), text));
        }
        let expected = [("b/meta.json", r#"{"lost_events": 0}"#), ("b/trace.txt", "trace")];
        assert_eq!(files, expected.map(|(name, text)| (name.to_owned(), text.to_owned())));
        assert!(check(&bundle(r#"{"lost_events": 0}"#)).is_ok() && check(b"damage").is_err());
        assert!(super::plain(b"damage").is_err() && super::plain(&bundle("{}")).is_err());
        let error = packed(&bundle(r#"{"lost_events": 7}"#)).unwrap_err().to_string();
        assert!(error.starts_with("the kernel lost 7 events"), "{error}");
    }
}
