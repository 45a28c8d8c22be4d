//! The entry points, as a browser calls them, run here.

use std::panic::catch_unwind;

use nearpage_machine::work::Unwatched;
use nearpage_web::{Answer, Kind, Question, about, answer};
use serde_json::Value;

const NUMACTL: &[u8] = include_bytes!("../../../docs/src/examples/two-sockets.numactl");
const LOG: &[u8] =
    include_bytes!("../../nearpage-explain/tests/reports/6.12/lowmem-reserve-order3.log");
const BUNDLE: &[u8] = include_bytes!("../../../bundles/q612-n2-state.tar.zst");

fn ask(name: &str, content: &[u8], change: impl FnOnce(&mut Question)) -> Result<Answer, String> {
    let mut question = Question { name: name.into(), ..Question::default() };
    change(&mut question);
    answer(&question, content, &Unwatched).map_err(|error| error.to_string())
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

#[test]
fn what_is_dropped_is_recognised() {
    let kinds: [(&[u8], Kind); 9] = [
        (NUMACTL, Kind::Machine),
        (b"# lab\n--numa 2G,cpus=0\n", Kind::Machine),
        (b"> node 0 cpus: 0 1\n> node 0 size: 4096 MB\n", Kind::Machine),
        (b"<?xml version=\"1.0\"?>\n<topology version=\"2.0\">", Kind::Machine),
        (LOG, Kind::Log),
        (b"what is this", Kind::Log),
        (BUNDLE, Kind::Recording),
        (b"# tracer: nop\n", Kind::Trace),
        (b"\x17\x08Dtracing6\0", Kind::Trace),
    ];
    for (content, kind) in kinds {
        assert_eq!(
            Kind::of(content),
            kind,
            "{}",
            String::from_utf8_lossy(&content[..20.min(content.len())])
        );
    }
    // Its logs come before what tells that it is a bundle.
    let mixed = include_bytes!("../../nearpage-replay/bundles/q612-n2-mixed.tar.zst");
    assert_eq!(Kind::of(mixed), Kind::Recording);
    // Half a recording is one, and is told by its reader.
    assert_eq!(Kind::of(&BUNDLE[..BUNDLE.len() / 2]), Kind::Recording);
    // A mail may have both.
    let both = [NUMACTL, LOG].concat();
    assert_eq!(Kind::of(&both), Kind::Log);
}

#[test]
fn a_machine_is_shown_by_rules_and_settings() {
    let plain = ask("m", NUMACTL, |asked| asked.model = Some("linux-6.12".into())).unwrap();
    let raised = ask("m", NUMACTL, |asked| {
        asked.model = Some("linux-6.12".into());
        asked.set = vec!["vm.min_free_kbytes=262144".into()];
    })
    .unwrap();
    let (before, after) = (json(&plain.document), json(&raised.document));
    assert_eq!(before["model"], "linux-6.12");
    assert_eq!(before["nodes"][2]["fallback"], json("[2, 0, 1]"));
    let min = |of: &Value| of["nodes"][0]["zones"][0]["watermarks"]["min"].as_u64().unwrap();
    assert!(min(&after) > min(&before));
    assert_eq!(after["set"][0]["after"], "262144");
    let view = json(&raised.view);
    assert_eq!(view["before"]["nodes"], before["nodes"]);
    assert_eq!(json(&plain.view)["before"], Value::Null);
    assert_eq!(
        raised.command,
        "nearpage topo --topology m --model linux-6.12 --set 'vm.min_free_kbytes=262144'"
    );
}

#[test]
fn a_machine_in_the_short_form_is_the_same_machine() {
    let figures = |content: &[u8]| {
        let answer = ask("m", content, |asked| asked.model = Some("linux-6.18".into())).unwrap();
        let mut document = json(&answer.document);
        // A description by numactl has free memory, too.
        document["nodes"]
            .as_array_mut()
            .unwrap()
            .iter_mut()
            .for_each(|node| node["free_bytes"] = Value::Null);
        let short = json(&answer.view)["short_form"].as_str().unwrap().to_owned();
        ((document["nodes"].clone(), document["distances"].clone()), short)
    };
    let asymmetric = b"--numa 2G,cpus=0-1,4 --numa 0,cpus=2 --numa 640M --numa-distance 0,1=21 --numa-distance 1,0=31";
    for content in [NUMACTL, asymmetric] {
        let (machine, short) = figures(content);
        assert_eq!(figures(short.as_bytes()), (machine, short));
    }
}

#[test]
fn a_log_is_explained_zone_by_zone() {
    let answer = ask("refused.log", LOG, |_| ()).unwrap();
    let document = json(&answer.document);
    assert!(!document["reports"][0]["verdict"]["zones"].as_array().unwrap().is_empty());
    assert!(json(&answer.view)["reports"][0]["head"].as_str().unwrap().starts_with("line "));
    assert!(
        answer.page.contains("Why memory was refused")
            && answer.page.contains("nearpage explain refused.log")
    );
    let none = ask("none", b"nothing\n", |_| ()).unwrap();
    assert_eq!(json(&none.document)["reports"], json("[]"));
}

#[test]
fn a_recording_is_replayed_and_asked_what_if() {
    let plain = ask("r.tar.zst", BUNDLE, |_| ()).unwrap();
    let document = json(&plain.document);
    assert!(document["fidelity"]["percent"].as_f64().unwrap() > 90.0);
    assert_eq!(document["what_if"], Value::Null);
    let asked = ask("r.tar.zst", BUNDLE, |asked| {
        asked.set = vec!["pcp.batch_scale_max=0".into()];
        asked.machine = Some("--numa 2G,cpus=0-3 --numa 1G".into());
    })
    .unwrap();
    let what_if = &json(&asked.document)["what_if"];
    assert_eq!(what_if["changes"]["settings"][0]["key"], "pcp.batch_scale_max");
    assert_eq!(what_if["changes"]["machine"]["nodes"]["after"], 2);
    assert!(asked.page.contains("What if: model"));
    assert!(
        asked.command.contains("--topology '--numa 2G,cpus=0-3 --numa 1G'"),
        "{}",
        asked.command
    );
}

#[test]
fn a_trace_alone_needs_a_machine() {
    let trace = b"# tracer: nop\n load-71 [001] ..... 12.000003: mm_page_alloc: page=0x1 pfn=0x14a04 order=0 migratetype=1 \
        gfp_flags=GFP_HIGHUSER_MOVABLE\n load-71 [001] ..... 12.000005: mm_page_free: page=0x1 pfn=0x14a04 order=0\n";
    assert!(ask("t", trace, |_| ()).unwrap_err().contains("machine"));
    let played =
        ask("t", trace, |asked| asked.machine = Some("--numa 2G,cpus=0-1".into())).unwrap();
    assert_eq!((played.kind, json(&played.document)["schema"].as_u64()), (Kind::Trace, Some(1)));
}

#[test]
fn what_may_be_asked_is_listed() {
    let about = json(&about());
    let names = about["tunables"].as_array().unwrap();
    assert!(names.iter().any(|key| key["name"] == "pcp.batch_scale_max"));
    assert!(about["models"].as_array().unwrap().iter().any(|model| model[0] == "linux-6.18"));
}

/// Files that somebody damaged, on purpose or not: each is answered or refused in words.
#[test]
fn damaged_files_are_answered_or_refused() {
    let mut random = fastrand::Rng::with_seed(49);
    let short = b"--numa 2G,cpus=0-3 --numa 0,cpus=4 --numa-distance 0,1=21";
    for at in 0..600 {
        let whole: &[u8] = match at {
            _ if at % 50 == 0 => BUNDLE,
            _ => [NUMACTL, LOG, short][at % 3],
        };
        let mut content = whole.to_vec();
        for _ in 0..random.usize(1..8) {
            let place = random.usize(..content.len());
            match random.u8(..4) {
                0 => content.truncate(place.max(1)),
                1 => content.extend_from_within(place..(place + 64).min(content.len())),
                _ => content[place] = random.u8(..),
            }
        }
        let set = ["vm.min_free_kbytes=18446744073709551615", "vm.lowmem_reserve_ratio=0", "x"];
        let question = Question {
            name: "<b>\u{202e}".into(),
            model: Some("linux-6.18".into()),
            set: set.iter().filter(|_| random.u8(..8) == 0).map(ToString::to_string).collect(),
            ..Question::default()
        };
        let told = catch_unwind(|| answer(&question, &content, &Unwatched));
        match told.unwrap_or_else(|_| panic!("case {at} of seed 49")) {
            Ok(answer) => {
                json(&answer.document);
                assert!(!answer.page.contains("<b>\u{202e}"), "case {at}");
            }
            Err(error) => assert!(error.to_string().len() > 3, "case {at}"),
        }
    }
}
