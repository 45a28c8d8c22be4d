//! Where the kernel of a machine is.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Architecture, RecordError};

/// Finds `vmlinuz-VERSION…` of a processor in `/boot` or where kernels were unpacked.
///
/// # Errors
///
/// There is none.
pub fn find(
    version: &str,
    architecture: Architecture,
    kernels: Option<&Path>,
) -> Result<PathBuf, RecordError> {
    let mut folders: Vec<PathBuf> =
        kernels.iter().flat_map(|folder| [folder.join("boot"), folder.to_path_buf()]).collect();
    folders.push("/boot".into());
    for folder in &folders {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let mut found: Vec<PathBuf> = entries
            .filter(|entry| is_it(&entry.file_name().to_string_lossy(), version, architecture))
            .map(|entry| entry.path())
            .collect();
        found.sort();
        if let Some(kernel) = found.into_iter().next() {
            return Ok(kernel);
        }
    }
    let places: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
    let processor = architecture.of_debian();
    Err(RecordError::Missing {
        what: format!("vmlinuz-{version}*-{processor}"),
        places: places.join(", "),
        remedy: format!("it comes with Debian's linux-image-{version}…-{processor}"),
    })
}

fn is_it(name: &str, version: &str, architecture: Architecture) -> bool {
    let rest = name.strip_prefix("vmlinuz-").and_then(|name| name.strip_prefix(version));
    // 6.1 is not 6.12.
    let is_version = |rest: &str| !rest.starts_with(|next: char| next.is_ascii_digit());
    rest.is_some_and(|rest| is_version(rest) && rest.ends_with(architecture.of_debian()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_told_by_version_and_processor() {
        let found = |name, version, architecture| is_it(name, version, architecture);
        let (amd64, arm64) = (Architecture::X86_64, Architecture::Aarch64);
        assert!(found("vmlinuz-6.1.0-56-amd64", "6.1", amd64));
        assert!(found("vmlinuz-6.12.117+deb12-arm64", "6.12", arm64));
        assert!(!found("vmlinuz-6.12.117+deb12-arm64", "6.12", amd64));
        assert!(!found("vmlinuz-6.12.117+deb12-amd64", "6.1", amd64));
        assert!(!found("config-6.1.0-56-amd64", "6.1", amd64));
    }

    #[test]
    fn a_missing_kernel_names_its_package() {
        let folder = tempfile::tempdir().unwrap();
        let error = find("9.9", Architecture::Aarch64, Some(folder.path())).unwrap_err();
        assert!(error.to_string().ends_with("it comes with Debian's linux-image-9.9…-arm64"));
    }
}
