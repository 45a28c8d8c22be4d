//! A file that can be weighed: nothing but what the entry reaches.

fn main() {
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "none") {
        println!("cargo:rustc-link-arg-bins=--no-pie");
        println!("cargo:rustc-link-arg-bins=--gc-sections");
        println!("cargo:rustc-link-arg-bins=--entry=size_entry");
    }
}
