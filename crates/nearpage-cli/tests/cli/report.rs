//! Pages of `--report`: whole, safe, without anything from elsewhere.

use std::fs;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use assert_cmd::Command;
use roxmltree::Document;

fn nearpage(arguments: &[&str]) -> Output {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("nearpage"));
    command.args(arguments).output().unwrap()
}

/// The page that a command writes, after looking at what all pages have in common.
fn page(folder: &Path, arguments: &[&str]) -> String {
    let path = folder.join("out.html");
    let with_report = [arguments, &["--report", path.to_str().unwrap()]].concat();
    let output = nearpage(&with_report);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {message}");
    let page = fs::read_to_string(path).unwrap();
    check(&page);
    page
}

/// The page without the scripts that its policy lets run, and those.
fn without_scripts(page: &str) -> (String, Vec<&str>) {
    let (mut rest, mut outside, mut scripts) = (page, String::new(), Vec::new());
    while let Some((before, script)) = rest.split_once("<script>") {
        let (script, after) = script.split_once("</script>").unwrap();
        outside.push_str(before);
        scripts.push(script);
        rest = after;
    }
    (outside + rest, scripts)
}

fn check(page: &str) {
    let (page, scripts) = without_scripts(page);
    let policy = "content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-";
    assert!(page.contains(policy) && (1..=2).contains(&scripts.len()));
    for script in scripts {
        for fetches in ["fetch(", "XMLHttpRequest", "import(", "WebSocket", "eval(", "innerHTML"] {
            assert!(!script.contains(fetches), "{fetches}");
        }
    }
    let outside = page.replace("\"http://www.w3.org/2000/svg\"", "");
    let outside = outside.replace("<script type=\"application/json\"", "");
    for fetched in
        ["http:", "https:", "//www", "<script", "<link", "<img", "@import", "url(", "src="]
    {
        assert!(!outside.contains(fetched), "{fetched}");
    }
    // Elements of the body all have an end, and its escapes are those of XML.
    let (begin, end) = (page.find("<body>").unwrap(), page.find("</body>").unwrap());
    let body = &page[begin..end + "</body>".len()];
    let document = Document::parse(body).unwrap_or_else(|error| panic!("{error}"));
    let drawings = document.descendants().filter(|node| node.has_tag_name(SVG)).count();
    assert!(drawings >= 2, "{drawings} drawings");
    assert!(page.starts_with("<!DOCTYPE html>"));
}

const SVG: (&str, &str) = ("http://www.w3.org/2000/svg", "svg");

const HOSTILE: &str = r#"schema = 1
name = "a <b> & \"c\""
title = "</title><script>alert('x')</script>"

[machine]
costs = "altix-sn2"
nodes = [{ ids = "0,8", cpus_each = 2, memory = "16M" }]
distance = { other = 20 }

[workload.memory-hog]
scale = 1
memory = ["8M"]
threads = [1]
stores_per_page = 1
"#;

#[test]
fn a_scenario_of_any_name_makes_a_safe_page() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hostile.toml");
    fs::write(&file, HOSTILE).unwrap();
    let file = file.to_str().unwrap();
    let page = page(folder.path(), &["lab", file, "--seed", "7"]);
    assert!(page.contains("&lt;script&gt;alert(") && page.contains("a &lt;b&gt; &amp;"));
    assert!(page.contains(&format!("nearpage lab {file} --seed 7 --report ")), "the command");
    assert!(page.contains("node 8") && page.contains("8 to 0: 20"), "the machine");
    for plot in
        ["by node", "Free pages of node ", "Pageset of CPU 0 for node 0", "Longest queue at a lock"]
    {
        assert!(page.contains(plot), "{plot}");
    }
    assert!(page.contains("model time, ms"), "a run over its time");
}

#[test]
fn several_scenarios_share_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let page = page(folder.path(), &["lab", "thp-then-order0", "node0-empty"]);
    assert!(page.contains("href=\"#scenario-1\"") && page.contains("id=\"scenario-1\""));
}

#[test]
fn the_shipped_bundle_makes_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bundles/q612-n2-mixed.tar.zst");
    let page = page(folder.path(), &["replay", bundle, "--set", "pcp.batch_scale_max=0"]);
    for part in ["Fidelity 9", "refill_pages", "What if: ", "Free pages, node 1", "Pageset of CPU"]
    {
        assert!(page.contains(part), "{part}");
    }
}

#[test]
fn another_machine_is_drawn_beside_the_recorded_one() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bundles/q612-n2-mixed.tar.zst");
    let arguments = ["replay", bundle, "--topology", "--numa 1G,cpus=0-3 --numa 0,cpus=4-7"];
    let page = page(folder.path(), &arguments);
    for part in ["what if: nodes, CPUs, memory", "CPU 4-7", "no memory", "recorded: distances"] {
        assert!(page.contains(part), "{part}");
    }
}

#[test]
fn a_page_replaces_no_input() {
    let folder = tempfile::tempdir().unwrap();
    let (scenario, costs) = (folder.path().join("hostile.toml"), folder.path().join("costs.toml"));
    fs::write(&scenario, HOSTILE.replace("altix-sn2", costs.to_str().unwrap())).unwrap();
    fs::write(&costs, nearpage(&["lab", "costs", "altix-sn2"]).stdout).unwrap();
    let name = scenario.to_str().unwrap();
    for input in [&scenario, &costs] {
        let before = fs::read(input).unwrap();
        let output = nearpage(&["lab", name, "--report", input.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(message.contains("it is the input "), "{message}");
        assert_eq!(fs::read(input).unwrap(), before);
    }
}

#[test]
fn a_page_that_does_not_fit_is_an_error_and_the_result_is_printed() {
    let output = nearpage(&["lab", "thp-then-order0", "--json", "--report", "/dev/full"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("cannot write /dev/full: No space left"), "{message}");
    assert!(serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap().is_array());
}

#[test]
fn a_page_goes_to_standard_output() {
    let output = nearpage(&["lab", "thp-then-order0", "node0-empty", "--report", "-"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let page = String::from_utf8(output.stdout).unwrap();
    check(&page);
    assert!(page.trim_end().ends_with("</html>"), "nothing but the page");
}

#[test]
fn an_interrupted_run_without_results_leaves_no_page() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.html");
    let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin!("nearpage"));
    command.args(["lab", "zonelist-cache", "--report"]).arg(&path);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    std::thread::sleep(Duration::from_secs(2));
    let pid = child.id().cast_signed();
    // SAFETY: it sends a signal to the child, which has not been waited for.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGINT) }, 0);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "{output:?}");
}

#[test]
fn a_page_that_cannot_be_written_is_said_before_the_work() {
    for (arguments, documents) in [(["lab", "zonelist-cache"], 0), (["replay", "--json"], 1)] {
        let output = nearpage(&[&arguments[..], &["--report", "/nowhere/out.html"]].concat());
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        // Of a failed command standard output holds the document of the error alone, where JSON was asked for.
        let shown = String::from_utf8(output.stdout).unwrap();
        assert_eq!(shown.matches("\"exit_code\": 2").count(), documents, "{shown}");
        assert_eq!(shown.is_empty(), documents == 0, "{shown}");
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(message.contains("cannot write /nowhere/out.html: No such file"), "{message}");
    }
}
