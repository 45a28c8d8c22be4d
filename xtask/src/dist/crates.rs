//! For cargo: an archive of each crate that may be published, and the order in which that can be done.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use super::{Dist, Result, VERSION, array, io_error, step, take, text};

/// The file with the order.
pub(super) const ORDER: &str = "crates.txt";

pub(super) fn make(dist: &Dist) -> Result {
    let names = order(&dist.metadata(&["--no-deps"])?);
    let mut command = dist.cargo();
    command.args(["package", "--quiet", "--locked", "--no-verify"]);
    for name in &names {
        command.args(["--package", name]);
    }
    step("cargo package", &mut command)?;
    for name in &names {
        take(&dist.target.join(format!("package/{name}-{VERSION}.crate")), &dist.out)?;
    }
    fs::write(dist.out.join(ORDER), names.join("\n") + "\n").map_err(io_error(ORDER))
}

/// The crates that may be published, each after those that it needs; those that only its tests need may come later.
fn order(metadata: &Value) -> Vec<String> {
    // `publish` is a list of registries: an empty one means none.
    let may_be = |package: &Value| package["publish"].as_array().is_none_or(|to| !to.is_empty());
    let mut left: Vec<Value> = array(&metadata["packages"]);
    left.retain(may_be);
    let ours: BTreeSet<String> = left.iter().map(|package| text(&package["name"])).collect();
    let mut names: Vec<String> = Vec::new();
    while !left.is_empty() {
        let is_ready = |package: &Value| {
            let needs = array(&package["dependencies"]);
            let mut needs = needs.iter().filter(|need| need["kind"] != "dev");
            needs.all(|need| {
                let name = text(&need["name"]);
                !ours.contains(&name) || names.contains(&name)
            })
        };
        let (ready, later): (Vec<_>, Vec<_>) = left.into_iter().partition(is_ready);
        if ready.is_empty() {
            break; // A circle, which cargo refuses.
        }
        names.extend(ready.iter().map(|package| text(&package["name"])));
        left = later;
    }
    names
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_crate_comes_after_what_it_needs() {
        let need = |name: &str, kind: Value| json!({ "name": name, "kind": kind });
        let package = |name: &str, needs: &[Value]| json!({ "name": name, "publish": null, "dependencies": needs });
        let metadata = json!({ "packages": [
            package("program", &[need("library", Value::Null), need("elsewhere", Value::Null)]),
            package("library", &[need("core", json!("build")), need("program", json!("dev"))]),
            package("core", &[]),
            { "name": "private", "publish": [], "dependencies": [] },
        ] });
        assert_eq!(order(&metadata), ["core", "library", "program"]);
    }
}
