//! All rules, in their order.

use crate::facts::Facts;
use crate::finding::Finding;
use crate::{kernel, nodes, process};

/// The findings about the facts, in the order of the rules.
pub fn findings(facts: &Facts) -> Vec<Finding> {
    let mut findings: Vec<Finding> = facts.unreadable.iter().map(unreadable).collect();
    findings.extend(facts.missing.iter().map(missing));
    findings.extend(facts.unjudged.iter().map(unjudged));
    findings.extend(kernel::RULES.iter().filter_map(|rule| rule(facts)));
    findings.extend(nodes::findings(facts));
    findings.extend(process::findings(facts));
    findings
}

fn unreadable(error: &String) -> Finding {
    Finding::problem("unreadable", error, "what it says is not judged")
        .advise("look at it, or copy it again")
}

fn missing(what: &String) -> Finding {
    Finding::note("missing", what, "what it would say is not judged")
}

fn unjudged((path, rule): &(&str, &str)) -> Finding {
    Finding::note("missing", path, format!("not in the copy: {rule} is not judged"))
}
