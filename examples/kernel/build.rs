//! Where the kernel lies in memory.

fn main() {
    let os = std::env::var("CARGO_CFG_TARGET_OS").unwrap_or_default();
    let architecture = std::env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    println!("cargo:rerun-if-changed=src/arch/{architecture}/link.ld");
    if os == "none" {
        let here = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
        println!("cargo:rustc-link-arg-bins=-T{here}/src/arch/{architecture}/link.ld");
        println!("cargo:rustc-link-arg-bins=--no-pie");
    }
}
