//! What the program is made of: a bill of materials as CycloneDX 1.5 has it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::{Value, json};

use super::{Dist, Result, VERSION, array, io_error, text};

pub(super) fn make(dist: &Dist) -> Result {
    let metadata = dist.metadata(&["--locked", "--filter-platform=x86_64-unknown-linux-musl"])?;
    let lock = fs::read_to_string(dist.root.join("Cargo.lock")).map_err(io_error("Cargo.lock"))?;
    let bill = serde_json::to_string_pretty(&bill(&metadata, &lock)).unwrap_or_default() + "\n";
    fs::write(dist.out.join(format!("nearpage-{VERSION}.cdx.json")), bill)
        .map_err(io_error("the bill of materials"))
}

/// Each crate that the program is linked from, with its licence and the checksum of its archive.
fn bill(metadata: &Value, lock: &str) -> Value {
    let packages: BTreeMap<String, Value> = array(&metadata["packages"])
        .into_iter()
        .map(|package| (text(&package["id"]), package))
        .collect();
    let nodes: BTreeMap<String, Value> = array(&metadata["resolve"]["nodes"])
        .into_iter()
        .map(|node| (text(&node["id"]), node))
        .collect();
    let root = packages.values().find(|package| package["name"] == "nearpage-cli");
    let mut left: Vec<String> = root.map(|package| text(&package["id"])).into_iter().collect();
    let mut linked = BTreeSet::new();
    while let Some(id) = left.pop() {
        if !linked.insert(id.clone()) {
            continue;
        }
        let needs = nodes.get(&id).map(|node| array(&node["deps"])).unwrap_or_default();
        let is_linked =
            |need: &&Value| array(&need["dep_kinds"]).iter().any(|kind| kind["kind"].is_null());
        left.extend(needs.iter().filter(is_linked).map(|need| text(&need["pkg"])));
    }
    let sums = checksums(lock);
    let components = linked.iter().filter_map(|id| packages.get(id)).map(|package| {
        let (name, version) = (text(&package["name"]), text(&package["version"]));
        let hash = sums.get(&(name.clone(), version.clone()));
        json!({
            "type": "library",
            "name": name,
            "version": version,
            "purl": format!("pkg:cargo/{name}@{version}"),
            "licenses": [{ "expression": text(&package["license"]).replace('/', " OR ") }],
            "hashes": hash.map(|content| vec![json!({ "alg": "SHA-256", "content": content })]).unwrap_or_default(),
        })
    });
    let mut components: Vec<Value> = components.collect();
    components.sort_by_key(|component| (text(&component["name"]), text(&component["version"])));
    json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": { "type": "application", "name": "nearpage", "version": VERSION } },
        "components": components,
    })
}

/// Checksums of archives, by name and version.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let mut sums = BTreeMap::new();
    for package in lock.split("[[package]]") {
        let field = |key: &str| {
            let line =
                package.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \""))?;
            Some(line.trim_end_matches('"').to_owned())
        };
        if let (Some(name), Some(version), Some(sum)) =
            (field("name"), field("version"), field("checksum"))
        {
            sums.insert((name, version), sum);
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_linked_is_in_the_bill_and_what_builds_is_not() {
        let package = |name: &str| json!({ "id": name, "name": name, "version": "1.0.0", "license": "MIT/Apache-2.0" });
        let need =
            |name: &str, kind: Value| json!({ "pkg": name, "dep_kinds": [{ "kind": kind }] });
        let metadata = json!({
            "packages": (["nearpage-cli", "linked", "builds", "apart"].map(package)),
            "resolve": { "nodes": [
                { "id": "nearpage-cli", "deps": [need("linked", Value::Null), need("builds", json!("build"))] },
                { "id": "linked", "deps": [] },
            ] },
        });
        let lock = "[[package]]\nname = \"linked\"\nversion = \"1.0.0\"\nchecksum = \"ab12\"\n";
        let bill = bill(&metadata, lock);
        let names: Vec<&str> = bill["components"]
            .as_array()
            .unwrap()
            .iter()
            .map(|of| of["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["linked", "nearpage-cli"]);
        assert_eq!(bill["components"][0]["hashes"][0]["content"], "ab12");
        assert_eq!(bill["components"][0]["licenses"][0]["expression"], "MIT OR Apache-2.0");
    }
}
