//! The lines that the book shows are those of the kernel that boots.

use std::path::Path;

#[test]
fn the_book_shows_the_kernel() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |path: &str| std::fs::read_to_string(root.join(path)).expect(path);
    let kernel = read("examples/kernel/src/mine.rs");
    let chapter = read("docs/src/guides/in-your-kernel.md");
    let between = |text: &str, from: &str, to: &str| {
        let (_, after) = text.split_once(from).expect(from);
        let (inside, _) = after.split_once(to).expect(to);
        let shown = inside.lines().filter(|line| !line.starts_with("# ") && !line.is_empty());
        shown.map(str::to_owned).collect::<Vec<_>>()
    };
    let lines = between(&kernel, "// ANCHOR: kernel\n", "// ANCHOR_END");
    assert!(lines.len() > 30, "{lines:?}");
    // What a kernel calls `crate::refused` stands in the doc test itself.
    let lines: Vec<_> =
        lines.iter().map(|line| line.replace("crate::refused", "refused")).collect();
    assert_eq!(between(&chapter, "```rust\n", "```"), lines);
}
