//! The examples and `calls.c`, compiled by each compiler that is there, linked with each library, and run.

use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A folder with `libnearpage.so` and `libnearpage.a`, as an installation has them.
fn libraries() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    // The test's own file lies in `deps`, where the libraries of the same build are.
    let deps = std::env::current_exe().expect("this test has a file");
    let deps = deps.parent().expect("it lies in a folder");
    for ending in ["so", "a"] {
        let built = deps.join(format!("libnearpage_c.{ending}"));
        let name = folder.path().join(format!("libnearpage.{ending}"));
        std::fs::copy(&built, name).unwrap_or_else(|error| panic!("{}: {error}", built.display()));
    }
    folder
}

struct Compiler {
    program: &'static str,
    arguments: &'static [&'static str],
}

const C: [Compiler; 3] = [
    Compiler { program: "gcc", arguments: &["-std=c99", "-O1"] },
    Compiler {
        program: "gcc",
        arguments: &[
            "-std=c11",
            "-O1",
            "-fsanitize=address,undefined",
            "-fno-sanitize-recover=all",
        ],
    },
    Compiler { program: "clang", arguments: &["-std=c99", "-O2"] },
];

const CPP: [Compiler; 3] = [
    Compiler { program: "g++", arguments: &["-std=c++17", "-O1"] },
    Compiler {
        program: "g++",
        arguments: &[
            "-std=c++17",
            "-O1",
            "-fsanitize=address,undefined",
            "-fno-sanitize-recover=all",
        ],
    },
    Compiler { program: "clang++", arguments: &["-std=c++20", "-O2"] },
];

/// Compiles a program; `None` without the compiler.
fn compiled(
    compiler: &Compiler,
    source: &str,
    libraries: &Path,
    is_static: bool,
) -> Option<PathBuf> {
    let Compiler { program, arguments } = compiler;
    if Command::new(program).arg("--version").output().is_err() {
        eprintln!("SKIPPED: {program} is not installed (apt install gcc g++ clang)");
        return None;
    }
    let out = libraries.join("program");
    let mut command = Command::new(program);
    command
        .args(*arguments)
        .args(["-Wall", "-Wextra", "-Werror", "-I"])
        .arg(root().join("include"));
    command.arg(root().join(source)).arg("-o").arg(&out);
    if is_static {
        command.arg(libraries.join("libnearpage.a"));
    } else {
        command.arg(libraries.join("libnearpage.so"));
    }
    command.args(["-lpthread", "-ldl", "-lm"]);
    let output = command.output().expect("the compiler starts");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?} {source}:\n{message}");
    Some(out)
}

fn runs(compilers: &[Compiler], source: &str) {
    let libraries = libraries();
    for (at, compiler) in compilers.iter().enumerate() {
        // The static library is the same for all: to link it takes seconds.
        for is_static in [false, true].into_iter().take(if at == 0 { 2 } else { 1 }) {
            let Some(program) = compiled(compiler, source, libraries.path(), is_static) else {
                break;
            };
            // Sanitizers watch the addresses above the library's reserve, not the reserve.
            let output = Command::new(&program)
                .arg(libraries.path().join("libnearpage.so"))
                .env("LD_LIBRARY_PATH", libraries.path())
                .env("ASAN_OPTIONS", "detect_leaks=0")
                .output()
                .expect("it starts");
            let text = String::from_utf8_lossy(&output.stdout);
            let errors = String::from_utf8_lossy(&output.stderr);
            let how = format!("{} {:?}, static: {is_static}", compiler.program, compiler.arguments);
            assert!(output.status.success(), "{source}, {how}: {}\n{text}{errors}", output.status);
            assert!(!text.is_empty(), "{source}, {how}: it printed nothing");
        }
    }
}

#[test]
fn the_packet_pool_runs() {
    runs(&C, "examples/packet_pool.c");
}

#[test]
fn the_buffer_pool_runs() {
    runs(&C, "examples/buffer_pool.c");
}

#[test]
fn containers_run() {
    runs(&CPP, "examples/containers.cpp");
}

#[test]
fn calls_answer_as_documented() {
    runs(&C, "tests/calls.c");
}

/// The blocks of README.md and of the guide, each a program or the lines of one.
#[test]
fn what_the_pages_show_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut blocks = 0;
    for page in ["README.md", "docs/src/guides/c.md"] {
        let page = std::fs::read_to_string(root().join("../..").join(page)).expect("a page");
        for (kind, ending, compilers) in [("```c\n", "c", &C[..1]), ("```cpp\n", "cpp", &CPP[..1])]
        {
            for block in page.split(kind).skip(1).filter_map(|rest| rest.split("```").next()) {
                let program = if block.contains("int main") {
                    block.to_owned()
                } else {
                    let header = if ending == "c" { "nearpage.h" } else { "nearpage.hpp" };
                    let vector = if ending == "c" { "" } else { "#include <vector>\n" };
                    format!(
                        "#include <{header}>\n#include <stdio.h>\n{vector}int main() {{\n{block}puts(\"done\");\n}}\n"
                    )
                };
                let path = folder.path().join(format!("block.{ending}"));
                std::fs::write(&path, program).expect("a file");
                runs(compilers, path.to_str().expect("a path of text"));
                blocks += 1;
            }
        }
    }
    assert_eq!(blocks, 4, "the pages show C and C++ twice");
}
