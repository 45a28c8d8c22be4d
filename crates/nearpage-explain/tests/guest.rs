//! Reports of real kernels, made in guests: of each is known by which rule the kernel refused, since the scenario was
//! built for it. `tests/guest/make.sh` makes them anew.

mod first;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use nearpage_explain::{Effect, Explanation, Kind, Reader};

/// Reports whose numbers were read after memory had come back, a tenth of a second after the refusal: they have blocks
/// that the request did not find. What they say is that they pass, and that this is not known.
const LATE: [(&str, &str); 4] = [
    ("6.1", "frag-order1-nowait"),
    ("6.12", "frag-order5-irq"),
    ("6.1", "later-frag-order2-fourth"),
    ("6.12", "later-frag-order7-fifth"),
];

/// A scenario that did not do what it was built for: a boost had raised `min` above what was free, so that nothing was left for
/// the reserve to refuse. The report has both numbers.
const OTHERWISE: [(&str, &str, &str); 1] = [("6.1", "later-highatomic", "watermark")];

/// Scenarios whose names begin so were written, with their truth, after `explain` was, and it was not changed for them.
const BLIND: &str = "later-";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

/// `# truth: rule=no_block zone=DMA32 node=1`, in the scenario.
fn truth(scenario: &str) -> BTreeMap<String, String> {
    let path = folder().join("guest/scenarios").join(format!("{scenario}.sh"));
    let text =
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let line =
        text.lines().find_map(|line| line.strip_prefix("# truth: ")).expect("a line of truth");
    line.split(' ')
        .map(|pair| pair.split_once('=').unwrap())
        .map(|(key, value)| (key.into(), value.into()))
        .collect()
}

fn found(explanation: &Explanation) -> BTreeMap<&'static str, String> {
    let Explanation { report, verdict, .. } = explanation;
    let mut found = BTreeMap::from([("rule", verdict.rule.name().to_owned())]);
    found.extend(verdict.zone.clone().map(|zone| ("zone", zone)));
    found.extend(verdict.node.map(|node| ("node", node.to_string())));
    found.extend(verdict.confined_by.as_ref().map(|by| ("confined", by.by.name().to_owned())));
    found.extend(report.victim.as_ref().map(|victim| ("killed", victim.name.clone())));
    found
}

/// The report that the scenario was built for: the first that is not of a cache. Who else asks meanwhile is refused too.
fn explained(path: &Path) -> Vec<Explanation> {
    let log = fs::read(path).unwrap();
    let reports = Reader::new(&log[..]).map(|report| Explanation::of(report.unwrap()));
    reports.filter(|explanation| explanation.report.kind != Kind::Slub).collect()
}

#[test]
fn the_rule_that_refused_is_the_one_that_the_scenario_was_built_for() {
    let mut wrong = Vec::new();
    let mut right = BTreeMap::new();
    let mut blind = 0;
    for release in ["6.1", "6.12"] {
        let mut logs: Vec<PathBuf> = fs::read_dir(folder().join("reports").join(release))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        logs.sort();
        for log in logs {
            let scenario = log.file_stem().unwrap().to_str().unwrap();
            let truth = truth(scenario);
            let explained = explained(&log);
            let Some(explanation) = explained.first() else {
                wrong.push(format!("{release} {scenario}: no report"));
                continue;
            };
            let found = found(explanation);
            if LATE.contains(&(release, scenario)) {
                assert_eq!(found["rule"], "passes", "{release} {scenario}");
                assert!(
                    explanation.unknown.iter().any(|text| text.contains("read after the refusal"))
                );
                continue;
            }
            if let Some((.., rule)) =
                OTHERWISE.iter().find(|(of, name, _)| (*of, *name) == (release, scenario))
            {
                assert_eq!(found["rule"], *rule, "{release} {scenario}");
                continue;
            }
            let differs = |(key, value): (&String, &String)| found.get(key.as_str()) != Some(value);
            let is_free = !truth.contains_key("confined") && found.contains_key("confined");
            if truth.iter().any(differs) || is_free {
                wrong.push(format!("{release} {scenario}: expected {truth:?}, found {found:?}"));
            }
            assert!(
                explanation.report.kernel.as_deref().unwrap().starts_with(&format!("{release}."))
            );
            *right.entry(truth["rule"].clone()).or_insert(0) += 1;
            blind += usize::from(scenario.starts_with(BLIND));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let reports: usize = right.values().sum();
    assert_eq!((reports, blind), (76, 24), "{right:?}: the book has these figures");
}

#[test]
fn an_area_larger_than_all_memory_names_no_zone() {
    for release in ["6.1", "6.12"] {
        let path = folder().join("reports").join(release).join("vmalloc-too-large.log");
        let verdict = &explained(&path)[0].verdict;
        assert_eq!((verdict.node, &verdict.zone), (None, &None), "{release}");
    }
}

/// The canary: a report whose numbers are those of another rule is told from it.
#[test]
fn other_numbers_give_another_rule() {
    let path = folder().join("reports/6.1/frag-order4-kernel.log");
    let log = fs::read_to_string(path).unwrap();
    let rule = |log: &str| first::explained(log).verdict.rule.name();
    assert_eq!(rule(&log), "no_block");
    let line = log.lines().find(|line| line.contains("Node 1 DMA32 free:")).unwrap();
    let (head, rest) = line.split_once("free:").unwrap();
    let (_, tail) = rest.split_once("kB").unwrap();
    assert_eq!(rule(&log.replace(line, &format!("{head}free:400kB{tail}"))), "watermark");
    let blocks = log.lines().find(|line| line.contains("Node 1 DMA32: ")).unwrap();
    let with_block = blocks.replace("0*64kB", "1*64kB (U)").replace("= 240100kB", "= 240164kB");
    assert_ne!(blocks, with_block);
    assert_eq!(rule(&log.replace(blocks, &with_block)), "passes");
}

/// More free pages are said to help by exactly as many as they do.
#[test]
fn remedies_hold_when_they_are_applied() {
    let path = folder().join("reports/6.12/noretry-order0.log");
    let log = fs::read_to_string(path).unwrap();
    let explanation = first::explained(&log);
    let remedy =
        explanation.remedies.iter().find(|remedy| remedy.change.name() == "free_pages").unwrap();
    assert_eq!(remedy.effect, Effect::Helps);
    let (node, zone) = (explanation.verdict.node.unwrap(), explanation.verdict.zone.unwrap());
    let row =
        explanation.report.zones.iter().find(|row| row.node == node && row.name == zone).unwrap();
    let mark = format!("Node {node} {zone} free:{}kB", row.free.least());
    for (more, rule) in
        [(remedy.amount.unwrap(), "passes"), (remedy.amount.unwrap() - 4, "watermark")]
    {
        let changed = log.replacen(
            &mark,
            &format!("Node {node} {zone} free:{}kB", row.free.least() + more),
            1,
        );
        let verdict = first::explained(&changed).verdict;
        let judged =
            verdict.zones.iter().find(|judged| judged.node == node && judged.zone == zone).unwrap();
        assert_eq!(judged.at_min.rule.name(), rule);
    }
}
