//! `cargo xtask install`: the C library, the malloc and the program in a folder, as packages have them.
//!
//! Rust's compiler gives the linker a list of symbols of its own, beside which symbols cannot have versions. So the shared
//! library is linked here, from the static one, with versions (`nearpage.map`) and a soname.

pub(crate) mod program;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::step::{StepError, step, target_dir};

/// What a program that links the static library needs beside it. The unwinder is not among it: compilers add the one that fits,
/// and with `-static` that is another.
const SYSTEM: [&str; 4] = ["-lpthread", "-lm", "-ldl", "-lc"];

#[derive(clap::Args)]
/// Install libnearpage (C and C++) and libnearpage-malloc.so into a folder: headers, libraries, nearpage.pc
///
/// The shared library has a soname and versions of symbols. `cc program.c $(pkg-config --cflags --libs nearpage)` builds a
/// program when PKG_CONFIG_PATH names the folder's lib/pkgconfig. It needs cc.
pub struct InstallArgs {
    /// The folder, as /usr/local
    #[arg(long)]
    pub(crate) prefix: PathBuf,
    /// Where libraries go [default: lib of the prefix]
    #[arg(long)]
    pub(crate) libdir: Option<PathBuf>,
    /// Put the files under this folder instead, as packages are made
    #[arg(long)]
    pub(crate) destdir: Option<PathBuf>,
    /// Also the program, its manual pages and completions, and units of systemd for export and record
    #[arg(long)]
    pub(crate) program: bool,
    /// The profile to build: release, or dist, which takes longer and is faster
    #[arg(long, default_value = "dist")]
    pub(crate) profile: String,
}

#[derive(thiserror::Error, Debug)]
pub enum InstallError {
    #[error("{what}: {error}")]
    Io { what: String, error: io::Error },
    #[error(transparent)]
    Step(#[from] StepError),
    #[error("--prefix {0} is not an absolute path")]
    NotAbsolute(PathBuf),
    #[error("{file} has a path of who built it: {path}")]
    Named { file: String, path: String },
}

fn failed(what: impl Into<String>) -> impl FnOnce(io::Error) -> InstallError {
    let what = what.into();
    move |error| InstallError::Io { what, error }
}

pub fn install(arguments: &InstallArgs) -> Result<(), InstallError> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("/"));
    install_from(arguments, root, &target_dir(), None)
}

/// Builds sources in a folder, and installs; the program names the commit, if it is not git's.
pub(crate) fn install_from(
    arguments: &InstallArgs,
    root: &Path,
    target: &Path,
    commit: Option<&str>,
) -> Result<(), InstallError> {
    if !arguments.prefix.is_absolute() {
        return Err(InstallError::NotAbsolute(arguments.prefix.clone()));
    }
    println!("building by the profile {}: that takes minutes", arguments.profile);
    let builders = builders(root);
    let profile = match arguments.profile.as_str() {
        "dist" => "library",
        other => other,
    };
    for (package, kind) in [("nearpage-c", "staticlib"), ("nearpage-preload", "cdylib")] {
        let mut build = cargo(root, &builders);
        build.args(["rustc", "--quiet", "--locked", "--lib", "--package", package]);
        build.args(["--profile", profile, "--crate-type", kind]).env("CARGO_TARGET_DIR", target);
        step("cargo rustc", &mut build)?;
    }
    let built = target.join(profile);
    let within = |path: &Path| match &arguments.destdir {
        Some(folder) => folder.join(path.strip_prefix("/").unwrap_or(path)),
        None => path.to_owned(),
    };
    let libdir = arguments.libdir.clone().unwrap_or_else(|| arguments.prefix.join("lib"));
    if !libdir.is_absolute() {
        return Err(InstallError::NotAbsolute(libdir));
    }
    let place = within(&arguments.prefix);
    let (library, include) = (within(&libdir), place.join("include"));
    let (pkgconfig, cmake) = (library.join("pkgconfig"), library.join("cmake/nearpage"));
    for folder in [&library, &include, &pkgconfig, &cmake] {
        fs::create_dir_all(folder).map_err(failed(folder.display().to_string()))?;
    }
    let crate_folder = root.join("crates/nearpage-c");
    for header in ["nearpage.h", "nearpage.hpp"] {
        copy(&crate_folder.join("include").join(header), &include.join(header))?;
    }
    for built in [built.join("libnearpage_c.a"), built.join("libnearpage_preload.so")] {
        check(&built, &builders)?;
    }
    copy(&built.join("libnearpage_c.a"), &library.join("libnearpage.a"))?;
    copy(&built.join("libnearpage_preload.so"), &library.join("libnearpage-malloc.so"))?;
    shared(&library, &crate_folder.join("nearpage.map"))?;
    let text = pc(&arguments.prefix, &libdir);
    fs::write(pkgconfig.join("nearpage.pc"), text).map_err(failed("nearpage.pc"))?;
    let up = "../"
        .repeat(libdir.strip_prefix(&arguments.prefix).map_or(0, |path| path.iter().count()) + 2);
    for (file, text) in
        [("nearpageConfig.cmake", config(&up)), ("nearpageConfigVersion.cmake", config_version())]
    {
        fs::write(cmake.join(file), text).map_err(failed(file))?;
    }
    if arguments.program {
        let mut build = cargo(root, &builders);
        build.args(["build", "--quiet", "--locked", "--package", "nearpage-cli"]);
        build.args(["--profile", &arguments.profile]).env("CARGO_TARGET_DIR", target);
        if let Some(commit) = commit {
            build.env("BUILT_FROM_COMMIT", commit);
        }
        step("cargo build", &mut build)?;
        let program = target.join(&arguments.profile).join("nearpage");
        check(&program, &builders)?;
        program::install(&program, root, &arguments.prefix, &place)?;
    }
    println!("installed into {}", place.display());
    Ok(())
}

/// A command of cargo that builds without the builder's paths.
pub(crate) fn cargo(root: &Path, builders: &[(PathBuf, &str)]) -> Command {
    let given = std::env::var("RUSTFLAGS").unwrap_or_default();
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root).env("CARGO_ENCODED_RUSTFLAGS", flags(&given, builders).join("\u{1f}"));
    cargo
}

/// Folders of who builds, each with what stands for it in messages of panics. Of two that match, the last counts.
pub(crate) fn builders(root: &Path) -> Vec<(PathBuf, &'static str)> {
    let home =
        std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.components().count() > 1);
    let cargo = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let cargo = cargo.or_else(|| Some(home.as_ref()?.join(".cargo")));
    let folders = [(home, "/home"), (cargo, "/cargo"), (Some(root.to_owned()), "/nearpage")];
    folders.into_iter().filter_map(|(folder, name)| Some((folder?, name))).collect()
}

/// The flags of the compiler, with which no path of who builds gets into a library.
fn flags(given: &str, builders: &[(PathBuf, &str)]) -> Vec<String> {
    let remap = |(folder, name): &(PathBuf, &str)| {
        format!("--remap-path-prefix={}={name}", folder.display())
    };
    given.split_whitespace().map(str::to_owned).chain(builders.iter().map(remap)).collect()
}

/// Refuses a file that has such a path all the same.
pub(crate) fn check(file: &Path, builders: &[(PathBuf, &str)]) -> Result<(), InstallError> {
    let content = fs::read(file).map_err(failed(file.display().to_string()))?;
    for (folder, _) in builders {
        let path = folder.join("");
        let path = path.as_os_str().as_encoded_bytes();
        if content.windows(path.len()).any(|part| part == path) {
            let (file, path) = (file.display().to_string(), folder.display().to_string());
            return Err(InstallError::Named { file, path });
        }
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<(), InstallError> {
    fs::copy(from, to).map(drop).map_err(failed(format!("{} to {}", from.display(), to.display())))
}

/// Links the shared library from the static one, with links for the linker and the loader.
fn shared(library: &Path, map: &Path) -> Result<(), InstallError> {
    let version = env!("CARGO_PKG_VERSION");
    let (file, soname) = (format!("libnearpage.so.{version}"), soname(version));
    let versions = fs::read_to_string(map).map_err(failed(map.display().to_string()))?;
    let mut command = Command::new("cc");
    command
        .args(["-shared", "-o"])
        .arg(library.join(&file))
        .arg(format!("-Wl,-soname,{soname}"))
        .arg(format!("-Wl,--version-script={}", map.display()))
        .args([
            "-Wl,--gc-sections",
            "-Wl,-O1",
            "-Wl,--strip-all",
            "-Wl,-z,relro,-z,now",
            "-Wl,--no-undefined",
        ])
        // Archives give what somebody asks for.
        .args(functions(&versions).map(|function| format!("-Wl,--undefined={function}")))
        .arg(library.join("libnearpage.a"))
        .arg("-Wl,--as-needed")
        .args(SYSTEM);
    step("cc -shared", &mut command)?;
    for link in [soname.as_str(), "libnearpage.so"] {
        let link = library.join(link);
        let _ = fs::remove_file(&link);
        std::os::unix::fs::symlink(&file, &link).map_err(failed(link.display().to_string()))?;
    }
    Ok(())
}

/// The functions that a version script names.
fn functions(map: &str) -> impl Iterator<Item = &str> {
    map.lines()
        .filter_map(|line| line.trim().strip_suffix(';'))
        .filter(|name| name.starts_with("nearpage_"))
}

/// As long as the major version is 0, each minor version may change the interface.
pub(crate) fn soname(version: &str) -> String {
    let mut parts = version.split('.');
    match (parts.next(), parts.next()) {
        (Some("0"), Some(minor)) => format!("libnearpage.so.0.{minor}"),
        (Some(major), _) => format!("libnearpage.so.{major}"),
        _ => "libnearpage.so".to_owned(),
    }
}

/// What CMake's `find_package(nearpage)` reads; `up` leads from its folder to the prefix.
fn config(up: &str) -> String {
    let soname = soname(env!("CARGO_PKG_VERSION"));
    format!(
        "# find_package(nearpage), then target_link_libraries(program PRIVATE nearpage::nearpage)\n\
         get_filename_component(_nearpage_prefix \"${{CMAKE_CURRENT_LIST_DIR}}/{up}\" ABSOLUTE)\n\
         get_filename_component(_nearpage_libdir \"${{CMAKE_CURRENT_LIST_DIR}}/../..\" ABSOLUTE)\n\
         if(NOT TARGET nearpage::nearpage)\n  \
           add_library(nearpage::nearpage SHARED IMPORTED)\n  \
           set_target_properties(nearpage::nearpage PROPERTIES\n    \
             IMPORTED_LOCATION \"${{_nearpage_libdir}}/libnearpage.so\"\n    \
             IMPORTED_SONAME \"{soname}\"\n    \
             INTERFACE_INCLUDE_DIRECTORIES \"${{_nearpage_prefix}}/include\")\n\
         endif()\n"
    )
}

/// Whether a version that somebody wants is this one: as long as the major version is 0, each minor version may change the
/// interface.
fn config_version() -> String {
    let version = env!("CARGO_PKG_VERSION");
    let minor = version.rsplit_once('.').map_or(version, |(minor, _)| minor);
    format!(
        "set(PACKAGE_VERSION \"{version}\")\n\
         if(PACKAGE_FIND_VERSION VERSION_EQUAL PACKAGE_VERSION)\n  set(PACKAGE_VERSION_EXACT TRUE)\nendif()\n\
         if(PACKAGE_FIND_VERSION VERSION_LESS_EQUAL PACKAGE_VERSION AND NOT PACKAGE_FIND_VERSION VERSION_LESS \"{minor}\")\n  \
           set(PACKAGE_VERSION_COMPATIBLE TRUE)\nendif()\n"
    )
}

fn pc(prefix: &Path, libdir: &Path) -> String {
    let libdir = match libdir.strip_prefix(prefix) {
        Ok(path) => format!("${{prefix}}/{}", path.display()),
        Err(_) => libdir.display().to_string(),
    };
    format!(
        "prefix={}\nlibdir={libdir}\nincludedir=${{prefix}}/include\n\nName: nearpage\n\
         Description: The NUMA page allocator of a kernel, on real memory of a process\nVersion: {}\n\
         Libs: -L${{libdir}} -lnearpage\nLibs.private: {}\nCflags: -I${{includedir}}\n",
        prefix.display(),
        env!("CARGO_PKG_VERSION"),
        SYSTEM.join(" ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soname_changes_with_what_may_break() {
        assert_eq!(soname("0.1.0"), "libnearpage.so.0.1");
        assert_eq!(soname("0.1.7"), "libnearpage.so.0.1");
        assert_eq!(soname("2.3.4"), "libnearpage.so.2");
    }

    /// A panic names the file that it is in: as this compiler builds a library here, and as it is installed.
    #[test]
    fn no_path_of_who_builds_is_in_a_library() {
        let folder = tempfile::tempdir().unwrap();
        let (source, library) = (folder.path().join("a.rs"), folder.path().join("liba.a"));
        fs::write(&source, "#[no_mangle] pub extern \"C\" fn a(x: usize) -> u8 { [1u8, 2][x] }")
            .unwrap();
        let builders = [(folder.path().to_owned(), "/home")];
        let build = |flags: Vec<String>| {
            let mut rustc =
                Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
            rustc.args([
                "--crate-type",
                "staticlib",
                "-C",
                "opt-level=1",
                "-C",
                "panic=abort",
                "-o",
            ]);
            let status = rustc.arg(&library).args(flags).arg(&source).status();
            assert!(status.unwrap().success());
            check(&library, &builders)
        };
        assert!(matches!(build(Vec::new()), Err(InstallError::Named { .. })));
        build(flags("", &builders)).unwrap();
    }

    #[test]
    fn the_pc_file_has_what_a_compiler_needs() {
        let text = pc(Path::new("/opt/near"), Path::new("/opt/near/lib/x"));
        assert!(text.starts_with("prefix=/opt/near\n"), "{text}");
        assert!(text.contains("\nlibdir=${prefix}/lib/x\n"), "{text}");
        assert!(text.contains("\nLibs: -L${libdir} -lnearpage\n"), "{text}");
        assert!(!text.contains("gcc_s"), "-static could not link it: {text}");
    }
}
