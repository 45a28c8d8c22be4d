//! What must hold on every machine, of what its programs printed.

use serde_json::Value;

use super::firmware::Firmware;
use super::machines::{ALL_SUITES, BESIDE, Machine};
use super::suites::Part;
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

    /// A file that was sent.
    fn file(&self, name: &str) -> Result<&'a [u8], Broken> {
        self.sent.file(name).map_err(|error| error.to_string())
    }

    /// How a program ended, and what it printed.
    fn ended(&self, name: &str) -> Result<(String, String), Broken> {
        let text = String::from_utf8_lossy(self.file(name)?);
        let (end, printed) = text.split_once('\n').unwrap_or((&text, ""));
        if self.verbose {
            println!("--- {name}: {end}\n{printed}");
        }
        Ok((end.to_owned(), printed.to_owned()))
    }

    /// What a program printed that ended with one of these codes.
    fn printed(&self, name: &str, codes: &[i32]) -> Result<String, Broken> {
        let (end, printed) = self.ended(name)?;
        let code = end.strip_prefix("exit ").and_then(|code| code.parse().ok());
        if code.is_some_and(|code| codes.contains(&code)) {
            return Ok(printed);
        }
        let last: Vec<&str> = printed.lines().collect();
        let last = last[last.len().saturating_sub(40)..].join("\n    ");
        Err(format!("{name}: {end}, expected one of {codes:?}; it printed last:\n    {last}"))
    }

    /// The verdict on tests.
    fn passed(&self, part: &Part) -> Result<Vec<String>, Broken> {
        let (end, printed) = self.ended(part.name)?;
        part.judge(&end, &printed)
    }

    fn firmware(&self) -> Result<Firmware, Broken> {
        let cpuinfo = String::from_utf8_lossy(self.file("cpuinfo")?);
        Firmware::read(self.file("madt")?, self.file("srat")?, &cpuinfo)
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
    let topo = told.json("topo")?;
    let which = which_nodes(machine, &told.firmware()?, &topo)?;
    let mut lines = vec![topology(machine, &topo, &which)?];
    lines.push(placement("placement", &told.json("placement")?, machine.nodes_with_memory())?);
    told.printed("verify", &[0])?;
    lines.push("verify: every field of zoneinfo that follows from sizes is as predicted".into());
    lines.push(doctor(&told.printed("doctor", &[0, 1])?)?);
    if with_suites {
        // A machine runs for minutes: what is wrong with each of them is said at once.
        let mut wrong = Vec::new();
        for part in &ALL_SUITES {
            match told.passed(part) {
                Ok(passed) => lines.extend(passed),
                Err(told) => wrong.push(told),
            }
        }
        if !wrong.is_empty() {
            return Err(wrong.join("\n"));
        }
        let bench = told.printed("bench", &[0])?;
        let means = bench.lines().filter(|line| line.starts_with("Amean ")).count();
        if means == 0 {
            return Err("bench: its tables have no means".into());
        }
        lines.push(format!("bench: tables with {means} means"));
    }
    if machine.plugged.is_some() {
        lines.extend(plugged(machine, told, &topo, &which, with_suites)?);
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

/// Which of the machine's nodes each of the kernel's is.
fn which_nodes(machine: &Machine, firmware: &Firmware, topo: &Value) -> Result<Vec<usize>, Broken> {
    let page_bytes = number(&topo["page_bytes"], "topo: page_bytes")?;
    let mut which: Vec<usize> = Vec::new();
    for node in nodes_of(topo) {
        let at = firmware.domain(node, page_bytes)?.0 as usize;
        if at >= machine.nodes.len() || which.contains(&at) {
            return Err(format!("SRAT: domain {at} is no node of the machine, or has two: {node}"));
        }
        which.push(at);
    }
    Ok(which)
}

fn nodes_of(topo: &Value) -> &[Value] {
    topo["nodes"].as_array().map_or(&[], Vec::as_slice)
}

/// Memory that a node of the kernel's has, in MiB.
fn present_mib(topo: &Value, node: &Value) -> u64 {
    let zones = node["zones"].as_array().map_or(&[][..], Vec::as_slice).iter();
    let present: u64 = zones.filter_map(|zone| zone["present"].as_u64()).sum();
    (present * topo["page_bytes"].as_u64().unwrap_or(4096)) >> 20
}

/// Nodes, CPUs and distances are those of the machine, whatever numbers the kernel gave its nodes.
fn topology(machine: &Machine, topo: &Value, which: &[usize]) -> Result<String, Broken> {
    let empty = Vec::new();
    let found = nodes_of(topo);
    if found.len() != machine.nodes.len() {
        return Err(format!("topo: {} nodes, expected {}", found.len(), machine.nodes.len()));
    }
    for (node, &at) in found.iter().zip(which) {
        let (whole, of_node) = machine.nodes[at];
        let mib = present_mib(topo, node);
        let cpus = node["cpus"].as_array().map_or(0, Vec::len) as u32;
        // What lies below 1 MiB and what the firmware keeps is not there.
        let least = u64::from(whole) * 95 / 100;
        if cpus != of_node || !(least..=u64::from(whole)).contains(&mib) {
            return Err(format!(
                "topo: {mib} MiB and {cpus} CPUs, expected {whole} MiB and {of_node} of the machine's node {at}: {node}"
            ));
        }
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
        // Each node that has memory, once.
        let has_memory = |&id: &usize| machine.nodes[which[id]].0 > 0;
        let mut listed: Vec<usize> = order.iter().map(|&id| id as usize).collect();
        listed.sort_unstable();
        let expected: Vec<usize> = (0..found.len()).filter(has_memory).collect();
        if listed != expected || !order.is_sorted_by_key(far) {
            return Err(format!("topo: node {at} falls back to {order:?}"));
        }
    }
    Ok(format!(
        "topo: {} nodes, CPUs, distances and fallback orders are the machine's; by SRAT the kernel's nodes are its nodes {which:?}",
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

/// Memory came while a process ran, was used, and went; a CPU went and came.
fn plugged(
    machine: &Machine,
    told: &Told<'_>,
    before: &Value,
    which: &[usize],
    with_suites: bool,
) -> Result<Vec<String>, Broken> {
    let text =
        |name: &str| Ok::<_, Broken>(String::from_utf8_lossy(told.file(name)?).trim().to_owned());
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
    lines.push(came_to_its_node(machine, before, &without, which)?);
    if with_suites {
        let passed = told.passed(&BESIDE)?;
        lines.extend(
            passed.iter().map(|line| format!("{line}, while memory and a CPU came and went")),
        );
    }
    Ok(lines)
}

/// The memory that came is of the node into which it was plugged, and of no other.
fn came_to_its_node(
    machine: &Machine,
    before: &Value,
    after: &Value,
    which: &[usize],
) -> Result<String, Broken> {
    let (mib, into) = machine.plugged.map_or((0, 0), |(mib, node)| (u64::from(mib), node as usize));
    for (at, (old, new)) in nodes_of(before).iter().zip(nodes_of(after)).enumerate() {
        let more = present_mib(after, new).saturating_sub(present_mib(before, old));
        let expected = if which[at] == into { mib } else { 0 };
        if more != expected {
            return Err(format!("plugged: node {at} has {more} MiB more, expected {expected}"));
        }
    }
    Ok(format!("plugged: {mib} MiB more, all of them on the machine's node {into}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::guest::firmware::tests::firmware;
    use crate::guest::machines::MACHINES;

    #[test]
    fn nodes_are_found_under_other_numbers() {
        let two = &MACHINES[0];
        let firmware = firmware(&[(0..1024 << 20, 0), (1024 << 20..1792 << 20, 1)]);
        let zone = |start: u64, present: u64| json!({"present": present << 8, "start_pfn": start << 8, "spanned": present << 8});
        let topo = json!({
            "nodes": [
                {"zones": [zone(1024, 760)], "cpus": [0], "fallback": [0, 1]},
                {"zones": [zone(0, 500), zone(500, 520)], "cpus": [1], "fallback": [1, 0]},
            ],
            "page_bytes": 4096,
            "distances": [[10, 21], [21, 10]],
        });
        let check = |topo: &Value| {
            which_nodes(two, &firmware, topo).and_then(|which| topology(two, topo, &which))
        };
        assert!(check(&topo).unwrap().ends_with("[1, 0]"));
        let wrong_at = |place: &str, value: Value, expected: &str| {
            let mut wrong = topo.clone();
            *wrong.pointer_mut(place).unwrap() = value;
            assert!(check(&wrong).is_err_and(|error| error.contains(expected)), "{place}");
        };
        wrong_at("/distances/0/1", 20.into(), "not 21");
        wrong_at("/nodes/0/cpus", json!([]), "0 CPUs, expected 768 MiB and 1");
        wrong_at("/nodes/0/cpus", json!([1]), "SRAT: domains");
        wrong_at("/nodes/0/fallback", json!([1, 0]), "falls back");
        wrong_at("/nodes/0/fallback", json!([0, 0]), "falls back");
        wrong_at("/nodes/0/fallback", json!([0]), "falls back");
        wrong_at("/nodes/0/zones/0/present", (700 << 8).into(), "700 MiB");
        let twice = json!({"zones": [zone(0, 1)], "cpus": [1]});
        wrong_at("/nodes/0", twice, "has two");
    }

    #[test]
    fn memory_comes_to_the_node_that_it_was_plugged_into() {
        let machine = MACHINES.iter().find(|machine| machine.plugged.is_some()).unwrap();
        let topo = |mib: [u64; 2]| {
            let node = |mib: u64| json!({"zones": [{"present": mib << 8}]});
            json!({"nodes": mib.map(node), "page_bytes": 4096})
        };
        let came = |after| came_to_its_node(machine, &topo([512, 1024]), &topo(after), &[1, 0]);
        assert!(came([1024, 1024]).is_ok());
        assert!(came([512, 1536]).is_err_and(|error| error.contains("node 0 has 0 MiB more")));
        assert!(came([512, 1024]).is_err());
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
}
