//! What the environment changes: the nodes of this machine, the storage, and what is told of mistakes.

use serde_json::Value;

use super::command;

/// Exit code, standard output and standard error of a run with variables.
fn run(variables: &[(&str, &str)], arguments: &[&str]) -> (i32, String, String) {
    let output = command(arguments).envs(variables.iter().copied()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn json(variables: &[(&str, &str)], arguments: &[&str]) -> Value {
    let (code, stdout, stderr) = run(variables, &[arguments, &["--json"]].concat());
    assert_eq!((code, stderr.as_str()), (0, ""));
    serde_json::from_str(&stdout).unwrap()
}

#[test]
fn nodes_of_this_machine_are_those_that_a_memory_would_have() {
    let real = json(&[], &[]);
    let emulated = json(&[("NEARPAGE_NUMA", "fake=3")], &[]);
    assert_eq!(emulated["nodes"].as_array().unwrap().len(), 3);
    assert_eq!(emulated["distances"][0], serde_json::json!([10, 20, 20]));
    assert_eq!(emulated["source"], "this machine, NEARPAGE_NUMA=fake=3");
    let note = "NEARPAGE_NUMA=fake=3 emulates these nodes: the kernel does not know them, \
                and memory is not bound to them";
    assert_eq!(emulated["warnings"].as_array().unwrap().last().unwrap(), note);
    let cpus = |document: &Value| -> Vec<u64> {
        let nodes = document["nodes"].as_array().unwrap().iter();
        nodes.flat_map(|node| node["cpus"].as_array().unwrap()).flat_map(Value::as_u64).collect()
    };
    assert_eq!(cpus(&emulated), cpus(&real));
    let (_, stdout, stderr) =
        run(&[("NEARPAGE_NUMA", "fake=2")], &["--format", "fallback", "--model", "linux-6.12"]);
    assert_eq!(stdout, "Fallback order for Node 0: 0 1 \nFallback order for Node 1: 1 0 \n");
    assert!(stderr.contains("NEARPAGE_NUMA=fake=2 emulates these nodes"), "{stderr}");
}

#[test]
fn an_emulated_topology_has_memoryless_nodes() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "--numa 1G --numa 0,cpus=0 --numa-distance 0,1=17").unwrap();
    let item = format!("topology={}", file.path().display());
    let (code, stdout, _) = run(&[("NEARPAGE_NUMA", &item)], &["--json"]);
    let document: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(code, 0);
    assert_eq!(document["source"], format!("this machine, NEARPAGE_NUMA={item}"));
    assert_eq!(document["nodes"][1]["effective_node"], 0);
    assert_eq!(
        document["warnings"].as_array().unwrap().last().unwrap(),
        "sizes in a topology file count for nothing in a memory, but 0 for a memoryless node"
    );
    assert_eq!(document["distances"], serde_json::json!([[10, 17], [17, 10]]));
}

#[test]
fn a_machine_that_is_named_is_not_emulated() {
    let numa = ["--numa", "1G,cpus=0"];
    let document = json(&[("NEARPAGE_NUMA", "fake=3")], &numa);
    assert_eq!(document["nodes"].as_array().unwrap().len(), 1);
    assert_eq!(document["warnings"], serde_json::json!([]));
}

#[test]
fn the_storage_is_the_one_that_is_chosen() {
    let document = json(&[("NEARPAGE_RSEQ", "off")], &["--numa", "1G,cpus=0"]);
    assert_eq!(document["storage"], "locked (a try-lock per CPU; NEARPAGE_RSEQ=off, or chosen)");
}

#[test]
fn mistakes_are_told_once_and_strict_makes_them_fatal() {
    let wrong = [("NEARPAGE_NUMA", "fak=2"), ("NEARPAGE_RSQE", "off")];
    let known = "expected NEARPAGE_ENV, NEARPAGE_NUMA, NEARPAGE_RSEQ or NEARPAGE_STATS";
    let unknown =
        format!("NEARPAGE_RSQE: there is no such variable (did you mean NEARPAGE_RSEQ?), {known}");
    let (code, stdout, stderr) = run(&wrong, &[]);
    assert!(code == 0 && stdout.starts_with("Machine   this machine; "), "{stdout}");
    assert_eq!(stderr.lines().count(), 2, "{stderr}");
    assert!(stderr.contains("NEARPAGE_NUMA: found \"fak=2\" (did you mean fake=N?), "));
    assert!(stderr.contains(&format!("nearpage: {unknown}; ignored\n")), "{stderr}");
    let strict = [&wrong[1..], &[("NEARPAGE_ENV", "strict")]].concat();
    let (code, stdout, stderr) = run(&strict, &[]);
    assert_eq!((code, stdout.as_str()), (2, ""));
    assert_eq!(stderr, format!("nearpage: {unknown}; NEARPAGE_ENV=strict makes this an error\n"));
}

#[test]
fn a_topology_file_that_is_not_there_is_refused() {
    let (code, stdout, stderr) = run(&[("NEARPAGE_NUMA", "topology=/no/such")], &[]);
    assert_eq!((code, stdout.as_str()), (2, ""));
    let expected = "nearpage: NEARPAGE_NUMA: /no/such: No such file or directory (os error 2)\n";
    assert_eq!(stderr, expected);
}

/// `bench` makes many memories, and each finds the same.
#[test]
fn warnings_are_told_once() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "--numa 1G,cpus=0,70000").unwrap();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_nearpage"))
        .args(["bench", "pairs", "--quick", "--rounds", "1"])
        .env("NEARPAGE_NUMA", format!("topology={}", file.path().display()))
        .env("NEARPAGE_RSEQ", "on")
        .output()
        .unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{told}");
    let count = |line: &str| told.lines().filter(|told| told.contains(line)).count();
    let ignored = "nearpage: NEARPAGE_RSEQ: found \"on\", expected auto or off; ignored";
    assert_eq!(count(ignored), 1, "{told}");
    assert_eq!(count("so that nobody runs there: 70000"), 1, "{told}");
}
