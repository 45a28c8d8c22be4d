//! `include/nearpage.h` is what cbindgen makes of the sources, and compiles as the oldest C and C++ that it promises.

use std::path::Path;
use std::process::Command;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn generated() -> String {
    let config = cbindgen::Config::from_file(root().join("cbindgen.toml")).expect("cbindgen.toml");
    let bindings = cbindgen::Builder::new().with_crate(root()).with_config(config).generate();
    let mut text = Vec::new();
    bindings.expect("the sources parse").write(&mut text);
    let text = String::from_utf8(text).expect("a header is text");
    for_c(&text)
}

/// Sections that speak to who writes Rust mean nothing in C: the promises there follow from the text above them.
fn for_c(text: &str) -> String {
    let mut lines = Vec::new();
    let mut skips = false;
    for line in text.lines() {
        if line.trim_start().starts_with("* # Safety") {
            skips = true;
            // The empty line before it.
            if lines.last().is_some_and(|last: &&str| last.trim() == "*") {
                lines.pop();
            }
        }
        if line.trim_start().starts_with("*/") {
            skips = false;
        }
        if !skips {
            // C89 knows no comment of this kind.
            lines.push(line.split(" // ").next().unwrap_or_default().trim_end());
        }
    }
    lines.join("\n") + "\n"
}

#[test]
fn the_header_is_that_of_the_sources() {
    let file = root().join("include/nearpage.h");
    let made = generated();
    if std::env::var_os("NEARPAGE_WRITE").is_some() {
        std::fs::write(&file, &made).expect("writing the header");
    }
    let kept = std::fs::read_to_string(&file).expect("include/nearpage.h");
    assert!(
        kept == made,
        "include/nearpage.h differs from the sources; NEARPAGE_WRITE=1 cargo test -p nearpage-c --test header writes it"
    );
}

/// Every function of the library is in the header, and the comments say what it returns.
#[test]
fn the_header_has_every_function() {
    let header = std::fs::read_to_string(root().join("include/nearpage.h")).unwrap();
    let mut functions = 0;
    for file in std::fs::read_dir(root().join("src")).unwrap().flatten() {
        let source = std::fs::read_to_string(file.path()).unwrap();
        for line in source.lines().filter(|line| line.contains("extern \"C\" fn nearpage_")) {
            let name = line.split("fn ").nth(1).unwrap().split('(').next().unwrap();
            assert!(header.contains(&format!("{name}(")), "{name} is not in the header");
            functions += 1;
        }
    }
    assert!(functions >= 30, "only {functions} functions were found");
}

#[test]
fn old_compilers_accept_the_headers() {
    let include = root().join("include");
    let dialects = [
        ("gcc", "c", "c89"),
        ("clang", "c", "c89"),
        ("g++", "c++", "c++11"),
        ("clang++", "c++", "c++11"),
        ("g++", "c++", "c++17"),
        ("clang++", "c++", "c++20"),
    ];
    let folder = tempfile::tempdir().unwrap();
    for (compiler, language, standard) in dialects {
        if Command::new(compiler).arg("--version").output().is_err() {
            eprintln!("SKIPPED: {compiler} is not installed (apt install gcc g++ clang)");
            continue;
        }
        let headers =
            if language == "c" { &["nearpage.h"][..] } else { &["nearpage.h", "nearpage.hpp"] };
        for header in headers {
            let source = folder.path().join("includes");
            std::fs::write(
                &source,
                format!("#include <{header}>\nint main(void) {{ return 0; }}\n"),
            )
            .unwrap();
            let output = Command::new(compiler)
                .args(["-x", language, &format!("-std={standard}"), "-pedantic-errors", "-Wall"])
                .args(["-Wextra", "-Werror", "-fsyntax-only", "-I"])
                .arg(&include)
                .arg(&source)
                .output()
                .unwrap();
            let message = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{compiler} -std={standard} {header}:\n{message}");
        }
    }
}

/// The functions whose symbols have a version are those of the header.
#[test]
fn every_function_has_a_version() {
    let read = |name: &str| std::fs::read_to_string(root().join(name)).unwrap();
    let (header, map) = (read("include/nearpage.h"), read("nearpage.map"));
    let words =
        header.split(|letter: char| !letter.is_ascii_alphanumeric() && !"_(".contains(letter));
    let functions: std::collections::BTreeSet<&str> = words
        .filter_map(|word| word.split_once('('))
        .map(|(name, _)| name)
        .filter(|name| name.starts_with("nearpage_") && !name.ends_with("_t"))
        .collect();
    let versioned: std::collections::BTreeSet<&str> = map
        .lines()
        .filter_map(|line| line.trim().strip_suffix(';'))
        .filter(|name| name.starts_with("nearpage_"))
        .collect();
    assert_eq!(versioned, functions);
}
