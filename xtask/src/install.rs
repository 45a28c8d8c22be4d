//! `cargo xtask install`: the C library and the malloc in a folder, as packages have them.
//!
//! Rust's compiler gives the linker a list of symbols of its own, beside which symbols cannot have versions. So the shared
//! library is linked here, from the static one, with versions (`nearpage.map`) and a soname.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

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
    prefix: PathBuf,
    /// Where libraries go [default: lib of the prefix]
    #[arg(long)]
    libdir: Option<PathBuf>,
    /// Put the files under this folder instead, as packages are made
    #[arg(long)]
    destdir: Option<PathBuf>,
    /// The profile to build: release, or dist, which takes longer and is faster
    #[arg(long, default_value = "dist")]
    profile: String,
}

#[derive(thiserror::Error, Debug)]
pub enum InstallError {
    #[error("{what}: {error}")]
    Io { what: String, error: io::Error },
    #[error("{0} failed")]
    Failed(&'static str),
    #[error("--prefix {0} is not an absolute path")]
    NotAbsolute(PathBuf),
}

fn failed(what: impl Into<String>) -> impl FnOnce(io::Error) -> InstallError {
    let what = what.into();
    move |error| InstallError::Io { what, error }
}

fn run(what: &'static str, command: &mut Command) -> Result<(), InstallError> {
    let status = command.status().map_err(failed(what))?;
    if status.success() { Ok(()) } else { Err(InstallError::Failed(what)) }
}

pub fn install(arguments: &InstallArgs) -> Result<(), InstallError> {
    if !arguments.prefix.is_absolute() {
        return Err(InstallError::NotAbsolute(arguments.prefix.clone()));
    }
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let packages = ["--package", "nearpage-c", "--package", "nearpage-preload"];
    println!("building the libraries by the profile {}: that takes minutes", arguments.profile);
    let profile = ["build", "--quiet", "--profile", &arguments.profile];
    run("cargo build", Command::new(cargo).args(profile).args(packages).current_dir(&root))?;
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let built = target.join(&arguments.profile);
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
    println!("installed into {}", place.display());
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
            "-Wl,--strip-debug",
            "-Wl,-z,relro,-z,now",
            "-Wl,--no-undefined",
        ])
        // Archives give what somebody asks for.
        .args(functions(&versions).map(|function| format!("-Wl,--undefined={function}")))
        .arg(library.join("libnearpage.a"))
        .arg("-Wl,--as-needed")
        .args(SYSTEM);
    run("cc -shared", &mut command)?;
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
fn soname(version: &str) -> String {
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

    #[test]
    fn the_pc_file_has_what_a_compiler_needs() {
        let text = pc(Path::new("/opt/near"), Path::new("/opt/near/lib/x"));
        assert!(text.starts_with("prefix=/opt/near\n"), "{text}");
        assert!(text.contains("\nlibdir=${prefix}/lib/x\n"), "{text}");
        assert!(text.contains("\nLibs: -L${libdir} -lnearpage\n"), "{text}");
        assert!(!text.contains("gcc_s"), "-static could not link it: {text}");
    }
}
