use super::*;

const RESULT: &str = "# peers, commit 1\npair: ns\n allocator   median \n nearpage      2.43 \n";

/// What is found on a page of a checkout that has no files.
fn found(name: &str, page: &str) -> Vec<String> {
    let results = Results::of("pages", RESULT);
    let checked = check(name, page, &results, Path::new("/nonexistent"));
    checked.found.into_iter().chain(checked.stale).collect()
}

fn only(page: &str, words: &str) {
    let found = found("docs/src/a.md", page);
    assert!(found.len() == 1 && found[0].contains(words), "{page}\n{found:#?}");
}

#[test]
fn a_figure_needs_a_source_that_has_it() {
    let sourced = "Takes 2.4 ns.\n<!-- figures: pages / pair / nearpage / median -->\n";
    assert!(found("docs/src/a.md", sourced).is_empty());
    only("Takes 2.4 ns.\n", "a.md:1: no source");
    only(&sourced.replace("2.4", "2.5"), "2.5, but 2.4 by pages / pair");
    only(&sourced.replace("nearpage /", "mmap /"), "0 rows");
    only(&sourced.replace("2.4 ns", "2.4 ns to 3 ns"), "2 figures (2.4, 3), and 1 keys");
    only("In 5 s.\n<!-- published: a mail -->\n", "has no year");
    assert!(found("docs/src/a.md", "In 5 s.\n<!-- published: Corbet, 2006 -->\n").is_empty());
    only("In 5 s.\n<!-- set: none.rs -->\n", "none.rs does not have 5");
}

#[test]
fn a_changed_result_changes_text_and_tables() {
    let page = "Takes 2.4 ns.\n<!-- figures: pages / pair / nearpage / median -->\n\n<!-- table: pages / pair -->\n| allocator | median |\n|---|---:|\n| nearpage | 2.43 |\n<!-- end -->\n";
    assert!(found("docs/src/a.md", page).is_empty());
    let results = Results::of("pages", &RESULT.replace("2.43", "3.58"));
    let checked = check("docs/src/a.md", page, &results, Path::new("/nonexistent"));
    assert_eq!(checked.stale.len(), 2, "{:#?}", checked.stale);
    assert_eq!(checked.text, page.replace("2.43", "3.58").replace("2.4 ns", "3.6 ns"));
}

/// Five results, changed by hand: each page that shows one would be another, and says that it is stale.
#[test]
fn five_changed_results_change_the_book() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let bench = tempfile::tempdir().unwrap();
    for file in fs::read_dir(root.join("bench")).unwrap().map(|entry| entry.unwrap().path()) {
        if file.is_file() {
            fs::copy(&file, bench.path().join(file.file_name().unwrap())).unwrap();
        }
    }
    let changed = [
        ("bound.txt", "| `linux-6.6` | 3.18 |", "| `linux-6.6` | 4.18 |", "how/bound.md"),
        ("programs.txt", "| mimalloc | 0.80 (", "| mimalloc | 0.70 (", "costs/programs.md"),
        ("export.txt", "| 0.8 ms median", "| 0.9 ms median", "reference/export.md"),
        ("answers.txt", "| 0.485 |", "| 0.486 |", "guides/answers.md"),
        ("scenarios.txt", "| 117 | 123 |", "| 117 | 124 |", "results/2023-pcp-autotune.md"),
    ];
    for (file, before, after, _) in changed {
        let path = bench.path().join(file);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(before), "bench/{file} has no {before}: another line will do");
        fs::write(path, text.replacen(before, after, 1)).unwrap();
    }
    let results = Results::read(bench.path()).unwrap();
    for (file, _, after, page) in changed {
        let text = fs::read_to_string(root.join("docs/src").join(page)).unwrap();
        let checked = check(page, &text, &results, &root);
        assert!(!checked.stale.is_empty(), "{page} does not notice another bench/{file}");
        let shown = after.split('|').rfind(|cell| !cell.trim().is_empty()).unwrap().trim();
        assert!(checked.text.contains(shown) && !text.contains(shown), "{page}: {shown}");
    }
}

#[test]
fn text_may_repeat_what_a_tested_block_shows() {
    let page = "```console\n$ nearpage\nfidelity: 98.99 %, 0.5 s, 1404 holds\n```\n\nThe score is 98.99 %, 0.5 s, 1404 times.\n";
    assert!(found("docs/src/a.md", page).is_empty());
    only(&page.replace("score is 98.99", "score is 98.98"), "no source");
    only(&page.replace(", 0.5 s, 1404 times", ", 5 s"), "no source");
}

#[test]
fn a_block_that_nothing_runs_is_found() {
    for kind in ["rust", "rust,ignore", "python", "", "console,norun"] {
        let page = format!("```{kind}\nx\n```\n");
        assert_eq!(found("docs/src/a.md", &page).len(), 1, "{kind}");
    }
    assert!(
        found("docs/src/a.md", "```console,ignore\n$ nearpage\n```\n").is_empty(),
        "a soak runs it"
    );
    only("```rust,ignore\n{{#include ../none.rs}}\n```\n", "../none.rs: ");
    let included = |anchor| {
        let page = format!(
            "```rust,ignore\n{{{{#include ../../examples/kernel/src/mine.rs:{anchor}}}}}\n```\n"
        );
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        check("docs/src/a.md", &page, &Results::of("pages", RESULT), &root).found
    };
    assert!(included("kernel").is_empty());
    assert!(included("none")[0].contains("has no anchor none"));
    only("```text\ntakes 3 ns\n```\n", "without `<!-- lines: FILE -->`");
    only(
        "<!-- lines: pages -->\n```text\nnearpage      2.44\n```\n",
        "has no line `nearpage      2.44`",
    );
    assert!(
        found("docs/src/a.md", "<!-- lines: pages -->\n```text\n nearpage      2.43\n```\n")
            .is_empty()
    );
}

#[test]
fn a_chapter_about_other_rules_is_found() {
    let today = default_rules();
    let page = format!("# Rules\n\n<!-- rules: {today} -->\n");
    assert!(found("docs/src/how/buddy.md", &page).is_empty());
    let other = page.replace(&today, "nearpage 00000000");
    assert!(
        found("docs/src/how/buddy.md", &other)[0]
            .contains("describes the rules of nearpage 00000000")
    );
    assert!(
        found("docs/src/how/buddy.md", "# Rules\n")[0].contains("describes the rules of nothing")
    );
    assert!(found("docs/src/a.md", "# No rules\n").is_empty());
}

#[test]
fn a_picture_older_than_its_results_is_found() {
    let results = Results::of("pages", RESULT);
    let picture = format!("<svg>{}</svg>", mark("pages", RESULT));
    assert_eq!(stale_picture(&picture, &results), None);
    let changed = Results::of("pages", &RESULT.replace("2.43", "2.44"));
    assert!(stale_picture(&picture, &changed).unwrap().contains("older than bench/pages.txt"));
    assert!(stale_picture("<svg></svg>", &results).unwrap().contains("does not say"));
    assert!(
        stale_picture(&picture.replace("pages", "none"), &results)
            .unwrap()
            .contains("no result file none")
    );
}

#[test]
fn values_are_rounded_as_a_page_shows_them() {
    assert_eq!(rounded(2.433, "2.5"), "2.4");
    assert_eq!(rounded(139_564.0, "1"), "139 564");
    assert_eq!(rounded(1404.0, "1403"), "1404");
    assert_eq!(rounded(1404.0, "1 403"), "1 404");
}
