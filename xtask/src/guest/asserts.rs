//! What must hold on every machine, of what its programs printed.

use serde_json::Value;

use super::machines::{IN_MEMORY, Machine};
use crate::record::output::Sent;

/// What a program printed, and how it ended.
pub struct Told<'a> {
    sent: &'a Sent<'a>,
    verbose: bool,
}

type Broken = String;

/// The JSON that a program printed first; notes may follow.
fn first_value(name: &str, text: &str) -> Result<Value, Broken> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter();
    let value = values.next().ok_or_else(|| format!("{name}: it printed nothing"))?;
    value.map_err(|error| format!("{name}: {error}: {text}"))
}

impl<'a> Told<'a> {
    /// Of what the machine sent.
    pub fn new(sent: &'a Sent<'a>, verbose: bool) -> Self {
        Self { sent, verbose }
    }

    /// What a program printed that ended with one of these codes.
    fn printed(&self, name: &str, codes: &[i32]) -> Result<String, Broken> {
        let text = self.sent.file(name).map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(text).into_owned();
        let (end, printed) = text.split_once('\n').unwrap_or((&text, ""));
        if self.verbose {
            println!("--- {name}: {end}\n{printed}");
        }
        let code = end.strip_prefix("exit ").and_then(|code| code.parse().ok());
        if code.is_some_and(|code| codes.contains(&code)) {
            return Ok(printed.to_owned());
        }
        let last: Vec<&str> = printed.lines().collect();
        let last = last[last.len().saturating_sub(40)..].join("\n    ");
        Err(format!("{name}: {end}, expected one of {codes:?}; it printed last:\n    {last}"))
    }

    fn json(&self, name: &str) -> Result<Value, Broken> {
        first_value(name, &self.printed(name, &[0])?)
    }
}

/// Checks everything; returns what was asserted, a line each.
///
/// # Errors
///
/// What does not hold.
pub fn check(machine: &Machine, told: &Told<'_>, with_suites: bool) -> Result<Vec<String>, Broken> {
    let mut lines = vec![topology(machine, &told.json("topo")?)?];
    lines.push(placement("placement", &told.json("placement")?, machine.nodes_with_memory())?);
    told.printed("verify", &[0])?;
    lines.push("verify: every field of zoneinfo that follows from sizes is as predicted".into());
    lines.push(doctor(&told.printed("doctor", &[0, 1])?)?);
    if with_suites {
        for (suite, _) in machine.suites {
            let text = told.printed(suite, &[0])?;
            lines.push(suite_passed(suite, &text)?);
            if *suite == "memory" {
                lines.push(passed_by_name(suite, &text, &IN_MEMORY)?);
            }
        }
        let bench = told.printed("bench", &[0])?;
        lines.push(format!("bench: {} lines of tables", bench.lines().count()));
    }
    if machine.plugged.is_some() {
        lines.extend(plugged(machine, told, with_suites)?);
    }
    Ok(lines)
}

impl Machine {
    fn nodes_with_memory(&self) -> usize {
        self.nodes.iter().filter(|(mib, _)| *mib > 0).count()
    }
}

fn number(value: &Value, what: &str) -> Result<u64, Broken> {
    value.as_u64().ok_or_else(|| format!("{what}: {value} is no number"))
}

/// Nodes, CPUs and distances are those of the machine, whatever numbers the kernel gave its nodes.
fn topology(machine: &Machine, topo: &Value) -> Result<String, Broken> {
    let empty = Vec::new();
    let found = topo["nodes"].as_array().unwrap_or(&empty);
    if found.len() != machine.nodes.len() {
        return Err(format!("topo: {} nodes, expected {}", found.len(), machine.nodes.len()));
    }
    // By position of the kernel's: which of the machine's it is.
    let mut which = Vec::new();
    for node in found {
        let zones = node["zones"].as_array().unwrap_or(&empty).iter();
        let present: u64 = zones.filter_map(|zone| zone["present"].as_u64()).sum();
        let mib = (present * topo["page_bytes"].as_u64().unwrap_or(4096)) >> 20;
        let cpus = node["cpus"].as_array().map_or(0, Vec::len) as u32;
        let fits = |&(at, &(whole, of_node)): &(usize, &(u32, u32))| {
            // What lies below 1 MiB and what the firmware keeps is not there.
            let least = u64::from(whole) * 95 / 100;
            !which.contains(&at) && cpus == of_node && (least..=u64::from(whole)).contains(&mib)
        };
        let place = machine.nodes.iter().enumerate().find(fits);
        let (at, _) = place.ok_or_else(|| format!("topo: no node of the machine is as {node}"))?;
        which.push(at);
    }
    let rows = topo["distances"].as_array().unwrap_or(&empty);
    for (from, row) in rows.iter().enumerate() {
        for (to, distance) in row.as_array().unwrap_or(&empty).iter().enumerate() {
            let default = if from == to { 10 } else { 20 };
            let row = machine.distances.get(which[from]).copied().unwrap_or_default();
            let expected = row.get(which[to]).copied().unwrap_or(default);
            if distance.as_u64() != Some(expected.into()) {
                return Err(format!("topo: distance {from} to {to} is {distance}, not {expected}"));
            }
        }
    }
    // Where memory comes from when a node has none left: the nearest first.
    for (at, node) in found.iter().enumerate() {
        let order: Vec<u64> = node["fallback"]
            .as_array()
            .unwrap_or(&empty)
            .iter()
            .filter_map(Value::as_u64)
            .collect();
        let far = |id: &u64| rows[at][*id as usize].as_u64().unwrap_or(0);
        if order.len() != machine.nodes_with_memory() || !order.is_sorted_by_key(far) {
            return Err(format!("topo: node {at} falls back to {order:?}"));
        }
    }
    Ok(format!(
        "topo: {} nodes, CPUs, distances and fallback orders are the machine's",
        found.len()
    ))
}

/// All pages are on the node that was asked for.
fn placement(name: &str, told: &Value, nodes: usize) -> Result<String, Broken> {
    let empty = Vec::new();
    let asked = told["nodes"].as_array().unwrap_or(&empty);
    if !told["note"].is_null() || asked.len() != nodes {
        return Err(format!("{name}: expected {nodes} nodes that are real: {told}"));
    }
    let mut pages = 0;
    for node in asked {
        for wrong in ["misplaced", "untouched", "unknown"] {
            if number(&node[wrong], name)? != 0 {
                return Err(format!("{name}: {wrong}: {node}"));
            }
        }
        pages += number(&node["touched"], name)?;
        if number(&node["touched"], name)? == 0 {
            return Err(format!("{name}: nothing was asked of a node: {node}"));
        }
    }
    let binding = told["binding"].as_str().unwrap_or_default();
    Ok(format!("{name}: {pages} pages on {nodes} nodes, 100 % on the node asked for ({binding})"))
}

/// It read everything that there is.
fn doctor(text: &str) -> Result<String, Broken> {
    let told = first_value("doctor", text)?;
    let empty = Vec::new();
    let findings = told["findings"].as_array().unwrap_or(&empty);
    if let Some(wrong) = findings.iter().find(|finding| finding["rule"] == "unreadable") {
        return Err(format!("doctor: {wrong}"));
    }
    Ok(format!("doctor: {} findings, nothing unreadable", findings.len()))
}

/// All tests that ran passed, and some ran.
fn suite_passed(suite: &str, text: &str) -> Result<String, Broken> {
    let line = text.lines().find(|line| line.starts_with("test result: "));
    let line = line.ok_or_else(|| format!("{suite}: it has no result"))?;
    let passed: u32 = line
        .split_once("ok. ")
        .and_then(|(_, rest)| rest.split(' ').next()?.parse().ok())
        .ok_or_else(|| format!("{suite}: {line}"))?;
    if passed == 0 {
        return Err(format!("{suite}: no test ran"));
    }
    Ok(format!("{suite}: {passed} tests passed"))
}

/// These tests, of which each has a name and is about something, are among those that passed.
fn passed_by_name(suite: &str, text: &str, tests: &[(&str, &str)]) -> Result<String, Broken> {
    let passed = |name: &str| text.lines().any(|line| line == format!("test {name} ... ok"));
    match tests.iter().find(|(name, _)| !passed(name)) {
        Some((name, about)) => Err(format!("{suite}: {name} did not pass: {about}")),
        None => {
            let all: Vec<&str> = tests.iter().map(|(_, about)| *about).collect();
            Ok(format!("{suite}: among them {}", all.join(", ")))
        }
    }
}

/// Memory came while a process ran, was used, and went; a CPU went and came.
fn plugged(machine: &Machine, told: &Told<'_>, with_suites: bool) -> Result<Vec<String>, Broken> {
    let text = |name: &str| {
        let sent = told.sent.file(name).map_err(|error| error.to_string())?;
        Ok::<_, Broken>(String::from_utf8_lossy(sent).trim().to_owned())
    };
    let (came, went) = (text("came")?, text("went")?);
    let blocks = |text: &str, at: usize| {
        text.split(' ').nth(at).and_then(|word| word.parse::<u32>().ok()).unwrap_or(0)
    };
    let count = blocks(&came, 0);
    if count == 0 {
        return Err(format!("plugged: {came}"));
    }
    // What this machine brought online itself is movable, and goes. What the kernel brought online is for all of its own pages
    // too, of which some cannot be moved.
    let is_movable = blocks(&came, 3) == count;
    let gone = blocks(&went, 0);
    if blocks(&went, 2) != count || gone == 0 || is_movable && gone < count {
        return Err(format!("plugged: {came}, but {went}"));
    }
    let nodes = machine.nodes_with_memory();
    let mut lines = vec![format!("plugged: {came}; later {went}")];
    for name in ["placement-plugged", "placement-without", "placement-unplugged"] {
        lines.push(placement(name, &told.json(name)?, nodes)?);
    }
    let without = told.json("topo-without")?;
    let cpus = |node: &Value| node["cpus"].as_array().map_or(0, Vec::len) as u32;
    let there: u32 = without["nodes"].as_array().map_or(0, |nodes| nodes.iter().map(cpus).sum());
    let all: u32 = machine.nodes.iter().map(|(_, cpus)| cpus).sum();
    if there + 1 != all {
        return Err(format!("topo-without: {there} CPUs of {all} while one was off"));
    }
    lines.push(format!("topo-without: {there} of {all} CPUs while one was off"));
    if with_suites {
        let passed = suite_passed("beside", &told.printed("beside", &[0])?)?;
        lines.push(format!("{passed}, while memory and a CPU came and went"));
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::guest::machines::MACHINES;

    #[test]
    fn nodes_are_found_under_other_numbers() {
        let two = &MACHINES[0];
        let topo = json!({
            "nodes": [
                {"zones": [{"present": 760 << 8}], "cpus": [1], "fallback": [0, 1]},
                {"zones": [{"present": 500 << 8}, {"present": 520 << 8}], "cpus": [0], "fallback": [1, 0]},
            ],
            "page_bytes": 4096,
            "distances": [[10, 21], [21, 10]],
        });
        assert!(topology(two, &topo).is_ok());
        let mut wrong = topo.clone();
        wrong["distances"][0][1] = 20.into();
        assert!(topology(two, &wrong).is_err_and(|error| error.contains("not 21")));
        let mut wrong = topo.clone();
        wrong["nodes"][0]["cpus"] = json!([]);
        assert!(topology(two, &wrong).is_err());
        let mut wrong = topo;
        wrong["nodes"][0]["fallback"] = json!([1, 0]);
        assert!(topology(two, &wrong).is_err_and(|error| error.contains("falls back")));
    }

    #[test]
    fn a_page_elsewhere_is_told() {
        let node =
            |misplaced| json!({"misplaced": misplaced, "untouched": 0, "unknown": 0, "touched": 9});
        let told = |misplaced| json!({"note": null, "binding": "bind", "nodes": [node(misplaced)]});
        assert!(placement("p", &told(0), 1).is_ok());
        assert!(placement("p", &told(1), 1).is_err());
        assert!(placement("p", &told(0), 2).is_err());
    }

    #[test]
    fn suites_pass_if_tests_ran() {
        let line = |result| format!("running 3 tests\n\ntest result: {result}; 0 ignored\n");
        assert_eq!(
            suite_passed("s", &line("ok. 3 passed; 0 failed")).unwrap(),
            "s: 3 tests passed"
        );
        assert!(suite_passed("s", &line("ok. 0 passed; 0 failed")).is_err());
        assert!(suite_passed("s", &line("FAILED. 2 passed; 1 failed")).is_err());
        assert!(suite_passed("s", "killed").is_err());
    }

    #[test]
    fn tests_are_asked_for_by_name() {
        let tests = [("a::one", "first things"), ("b::two", "others")];
        let all = "test a::one ... ok\ntest b::two ... ok\n";
        let told = "memory: among them first things, others";
        assert_eq!(passed_by_name("memory", all, &tests).unwrap(), told);
        for text in ["test a::one ... ok\n", "test a::one ... ok\ntest b::two ... FAILED\n"] {
            let error = passed_by_name("memory", text, &tests).unwrap_err();
            assert_eq!(error, "memory: b::two did not pass: others");
        }
    }
}
