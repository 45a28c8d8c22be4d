//! What a browser shows is what the command prints: the documents of `nearpage-web` beside `--json`.

use nearpage_machine::work::Unwatched;
use nearpage_web::{Question, answer};
use serde_json::Value;

use super::tidy::root;

fn printed(arguments: &[&str]) -> Value {
    let mut command = assert_cmd::Command::cargo_bin("nearpage").unwrap();
    let output = command.current_dir(root()).args(arguments).arg("--json").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn shown(name: &str, change: impl FnOnce(&mut Question)) -> Value {
    let mut question = Question { name: name.into(), ..Question::default() };
    change(&mut question);
    let content = std::fs::read(root().join(name)).unwrap();
    let answer = answer(&question, &content, &Unwatched).unwrap();
    serde_json::from_str(&answer.document).unwrap()
}

#[test]
fn a_machine_is_the_same() {
    let name = "docs/src/examples/two-sockets.numactl";
    let (model, set) = ("linux-6.12", "vm.watermark_scale_factor=200");
    let mut command = printed(&["topo", "--topology", name, "--model", model, "--set", set]);
    // What this process can use is no figure of the machine.
    let fields = command.as_object_mut().unwrap();
    assert!(fields.remove("storage").is_some() && fields.remove("binding").is_some());
    let change = |asked: &mut Question| {
        (asked.model, asked.set) = (Some(model.into()), vec![set.into()]);
    };
    assert_eq!(shown(name, change), command);
}

#[test]
fn a_log_is_the_same() {
    let folder = "crates/nearpage-explain/tests/reports";
    for name in ["6.12/lowmem-reserve-order3.log", "6.12/slub.log", "public/4.12-x86_64-oom.log"] {
        let name = format!("{folder}/{name}");
        assert_eq!(shown(&name, |_| ()), printed(&["explain", &name]));
    }
}

#[test]
fn a_replay_is_the_same() {
    let name = "bundles/q612-n2-state.tar.zst";
    let (machine, set) = ("--numa 2G,cpus=0-3 --numa 0,cpus=4 --numa 1G", "pcp.batch_scale_max=0");
    let command = printed(&["replay", name, "--set", set, "--topology", machine]);
    let change = |asked: &mut Question| {
        (asked.machine, asked.set) = (Some(machine.into()), vec![set.into()]);
    };
    assert_eq!(shown(name, change), command);
}
