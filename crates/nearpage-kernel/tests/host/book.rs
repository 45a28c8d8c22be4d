//! The lines that the book shows are those of the kernels that boot: it includes them.

use std::path::Path;

#[test]
fn the_book_shows_the_kernels() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |path: &str| std::fs::read_to_string(root.join(path)).expect(path);
    let chapter = read("docs/src/guides/in-your-kernel.md");
    for included in ["examples/smallest/src/kernel.rs", "examples/kernel/src/mine.rs:kernel"] {
        assert!(chapter.contains(&format!("{{{{#include ../../../{included}}}}}")), "{included}");
    }
    let kernel = read("examples/kernel/src/mine.rs");
    let (_, after) = kernel.split_once("// ANCHOR: kernel\n").expect("where the lines begin");
    let (shown, _) = after.split_once("// ANCHOR_END: kernel").expect("where they end");
    assert!(shown.lines().count() > 30, "{shown}");
}
