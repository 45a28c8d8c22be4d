//! Programs into which nothing can be preloaded, recognised by their files.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Why no call of a program will be counted; `None` if they will, or nobody can tell.
pub(super) fn why_uncounted(program: &OsStr) -> Option<String> {
    why(&found(program)?, 0)
}

/// The file that a shell would run.
fn found(program: &OsStr) -> Option<PathBuf> {
    if program.to_string_lossy().contains('/') {
        return Some(PathBuf::from(program));
    }
    let path: OsString = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

fn why(file: &Path, depth: u32) -> Option<String> {
    let name = file.display();
    let metadata = file.metadata().ok()?;
    // SAFETY: both calls only ask.
    let (user, group) = unsafe { (libc::getuid(), libc::getgid()) };
    // Of a file of one's own user it gives no rights, and the loader preloads as always.
    let is_other = |bit, is_own: bool| metadata.mode() & bit != 0 && !is_own;
    if is_other(libc::S_ISUID, metadata.uid() == user)
        || is_other(libc::S_ISGID, metadata.gid() == group)
    {
        return Some(format!(
            "{name} is setuid or setgid: the loader preloads nothing into a program with more rights than its user"
        ));
    }
    let mut start = Vec::new();
    File::open(file).ok()?.take(64 << 10).read_to_end(&mut start).ok()?;
    if let Some(script) = start.strip_prefix(b"#!") {
        let line = script.split(|byte| *byte == b'\n').next()?;
        let interpreter = String::from_utf8_lossy(line).trim().split(' ').next()?.to_owned();
        return if depth < 4 { why(Path::new(&interpreter), depth + 1) } else { None };
    }
    if is_static(&start)? {
        return Some(format!("{name} is statically linked: it has no loader that would preload"));
    }
    None
}

/// Whether an ELF file of 64 bits names no loader. `None` for other files.
fn is_static(file: &[u8]) -> Option<bool> {
    const LOADER: u32 = 3;
    if !file.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let half = |at: usize| Some(u16::from_le_bytes(file.get(at..at + 2)?.try_into().ok()?));
    let offset = u64::from_le_bytes(file.get(32..40)?.try_into().ok()?) as usize;
    let (size, count) = (half(54)? as usize, half(56)? as usize);
    let kinds = (0..count).map(|at| {
        let at = offset.checked_add(at * size)?;
        Some(u32::from_le_bytes(file.get(at..at.checked_add(4)?)?.try_into().ok()?))
    });
    let kinds: Option<Vec<u32>> = kinds.collect();
    Some(!kinds?.contains(&LOADER))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_program_tells_nothing() {
        assert_eq!(is_static(b""), None);
        assert_eq!(is_static(b"\x7fELF\x02\x01 short"), None);
        assert_eq!(why_uncounted(OsStr::new("/no/such/file")), None);
    }

    #[test]
    fn this_test_is_linked_with_a_loader() {
        let own = std::env::current_exe().unwrap();
        assert_eq!(why_uncounted(own.as_os_str()), None);
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("script");
        std::fs::write(&script, format!("#!{}\n", own.display())).unwrap();
        assert_eq!(why_uncounted(script.as_os_str()), None);
    }

    #[test]
    fn a_program_without_a_loader_is_static() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let mut start = own[..4096].to_vec();
        assert_eq!(is_static(&start), Some(false));
        let (size, count) = (56, u16::from_le_bytes([start[56], start[57]]) as usize);
        for at in (0..count).map(|at| 64 + at * size) {
            if start[at] == 3 {
                start[at] = 0;
            }
        }
        assert_eq!(is_static(&start), Some(true));
    }
}
