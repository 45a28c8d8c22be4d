//! Marks the library as one that is never unloaded: its keys, handlers and memory stay in use when who opened it closes it.
//!
//! Links the unwinder into the library, where the C compiler has it as an archive: another library to load is a tenth of a
//! millisecond in the start of each process.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    let is_gnu = env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|name| name == "gnu");
    let is_native = env::var("TARGET").ok() == env::var("HOST").ok();
    if !is_gnu || !is_native {
        return;
    }
    let found = Command::new("cc").arg("-print-file-name=libgcc_eh.a").output();
    let path = found.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    // Without it the compiler prints the bare name.
    if path.is_ok_and(|path| Path::new(&path).is_absolute()) {
        println!("cargo:rustc-link-lib=dylib:+verbatim=libgcc_eh.a");
    }
}
