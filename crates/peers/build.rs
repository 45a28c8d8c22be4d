//! Records the compiler and the commit, and compiles the DPDK peer where its library is installed.

use std::path::Path;
use std::process::Command;

/// DPDK 21.11 is the first with the `RTE_MEMPOOL_F_*` names that the shim uses.
const DPDK_AT_LEAST: &str = "--atleast-version=21.11";

fn main() {
    record_compiler();
    record_commit();
    println!("cargo:rustc-check-cfg=cfg(dpdk)");
    println!("cargo:rerun-if-changed=src/peers/dpdk.c");
    watch_pkg_config_folders();
    if output("pkg-config", &[DPDK_AT_LEAST, "libdpdk"]).is_some() {
        build_dpdk_shim();
    }
}

fn record_compiler() {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let version = output(&rustc, &["--version"]).unwrap_or_else(|| "unknown".into());
    println!("cargo:rustc-env=PEERS_RUSTC={version}");
}

/// A source archive has no commit: the variable is then not set.
fn record_commit() {
    for watched in [
        "../../.git/HEAD",
        "../../.git/logs/HEAD",
        "../nearpage/src",
        "../nearpage-linux/src",
        "src",
    ] {
        if Path::new(watched).exists() {
            println!("cargo:rerun-if-changed={watched}");
        }
    }
    if let Some(commit) = output("git", &["describe", "--always", "--dirty", "--tags"]) {
        println!("cargo:rustc-env=PEERS_COMMIT={commit}");
    }
}

/// Makes a library that is installed later be found by the next build.
fn watch_pkg_config_folders() {
    for variable in ["PKG_CONFIG_PATH", "PKG_CONFIG_LIBDIR"] {
        println!("cargo:rerun-if-env-changed={variable}");
    }
    let folders = output("pkg-config", &["--variable=pc_path", "pkg-config"]).unwrap_or_default();
    for folder in folders.split(':').filter(|folder| Path::new(folder).is_dir()) {
        println!("cargo:rerun-if-changed={folder}");
    }
}

fn build_dpdk_shim() {
    let flags = output("pkg-config", &["--cflags", "libdpdk"]).unwrap_or_default();
    let mut build = cc::Build::new();
    build.file("src/peers/dpdk.c").opt_level(3).warnings(false);
    for flag in flags.split_whitespace() {
        build.flag(flag);
    }
    build.compile("peers_dpdk");
    let folders = output("pkg-config", &["--libs-only-L", "libdpdk"]).unwrap_or_default();
    for folder in folders.split_whitespace() {
        println!("cargo:rustc-link-search=native={}", folder.trim_start_matches("-L"));
    }
    for library in ["rte_mempool", "rte_eal"] {
        println!("cargo:rustc-link-lib=dylib={library}");
    }
    println!("cargo:rustc-cfg=dpdk");
}

/// Standard output of a program that succeeded; `None` if it is missing or failed.
fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
