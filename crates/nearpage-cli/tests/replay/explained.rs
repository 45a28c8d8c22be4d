//! `--explain`: pages and moments in words.

use super::{nearpage, shipped, stdout, trace, unpack_shipped};

fn explained(what: &str) -> String {
    stdout(&["replay", shipped().to_str().unwrap(), "--explain", what])
}

#[test]
fn a_page_has_a_life() {
    let folder = tempfile::tempdir().unwrap();
    let text = trace(&unpack_shipped(folder.path()));
    // The first page that is allocated while the command runs.
    let begin = text.find("nearpage: cmd begin").unwrap();
    let line = text[begin..].lines().find(|line| line.contains("mm_page_alloc:")).unwrap();
    let frame = line.split("pfn=").nth(1).unwrap().split(' ').next().unwrap();
    let told = explained(frame);
    for expected in [
        format!("page {frame}, node "),
        "allocates ".into(),
        "recorded: node ".into(),
        "[get_page_from_freelist]".into(),
        "open loop".into(),
    ] {
        assert!(told.contains(&expected), "{expected}: {told}");
    }
    let decimal = u64::from_str_radix(&frame[2..], 16).unwrap().to_string();
    assert_eq!(explained(&decimal), told);
}

#[test]
fn a_moment_has_decisions() {
    let folder = tempfile::tempdir().unwrap();
    let text = trace(&unpack_shipped(folder.path()));
    let line = text.lines().rfind(|line| line.contains("mm_page_pcpu_drain:")).unwrap();
    let time = line.split_whitespace().find(|word| word.ends_with(':')).unwrap();
    let told = explained(time.trim_end_matches(':'));
    assert!(told.contains("mm_page_pcpu_drain"), "{told}");
    assert!(told.contains("model: "), "{told}");
}

#[test]
fn nothing_is_told_of_what_is_not_there() {
    assert!(explained("0x7").contains("no event of the window concerns it"));
    let output = nearpage(&["replay", shipped().to_str().unwrap(), "--explain", "soon"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("0x14a04"));
}

#[test]
fn only_what_was_recorded_is_explained() {
    let sides = [
        ["--set", "pcp.batch_scale_max=0"],
        ["--model", "linux-6.1"],
        ["--topology", "memoryless-8n2m"],
    ];
    for [option, value] in sides {
        let output = nearpage(&["replay", "--explain", "0x14a04", option, value]);
        assert_eq!(output.status.code(), Some(2), "{option}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(option), "{output:?}");
    }
}
