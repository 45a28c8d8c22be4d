//! What about a machine helps or hinders an allocator: facts, and what follows from each.
//!
//! [`Facts`] are read from a tree of /sys and /proc, and for the machine that runs this also asked of its
//! kernel. Each rule looks at the facts and makes one [`Finding`], or none where a copy does not tell.
//! Rules are in [`kernel`] (settings), [`nodes`] (the machine and who may use what) and [`process`] (what
//! only a running process can find out).

mod allowed;
mod facts;
mod kernel;
mod machine;
mod nodes;
mod process;
mod reader;
pub mod room;

pub use allowed::Allowed;
pub use facts::{Facts, Process};

/// How good it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// As it should be.
    Good,
    /// Worth knowing; it depends on the program whether something should be done.
    Note,
    /// Costs an allocator speed, memory or placement, or cannot be judged: something should be done.
    Problem,
}

impl Level {
    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Level::Good => "good",
            Level::Note => "note",
            Level::Problem => "problem",
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// What was looked at; stable.
    pub check: &'static str,
    /// How good it is.
    pub level: Level,
    /// What was found there.
    pub found: String,
    /// What that means for an allocator.
    pub meaning: String,
    /// What to do, where there is something.
    pub advice: Option<String>,
}

impl Finding {
    fn good(check: &'static str, found: impl ToString, meaning: impl Into<String>) -> Finding {
        let (found, meaning) = (found.to_string(), meaning.into());
        Finding { check, level: Level::Good, found, meaning, advice: None }
    }

    fn note(check: &'static str, found: impl ToString, meaning: impl Into<String>) -> Finding {
        Finding { level: Level::Note, ..Finding::good(check, found, meaning) }
    }

    fn problem(check: &'static str, found: impl ToString, meaning: impl Into<String>) -> Finding {
        Finding { level: Level::Problem, ..Finding::good(check, found, meaning) }
    }

    fn advise(self, advice: impl Into<String>) -> Finding {
        Finding { advice: Some(advice.into()), ..self }
    }
}

/// What follows from the facts, in the order of the rules.
pub fn findings(facts: &Facts) -> Vec<Finding> {
    let mut findings: Vec<Finding> = facts.unreadable.iter().map(unreadable).collect();
    findings.extend(facts.missing.iter().map(missing));
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

/// Ids the way that the kernel lists them.
fn list(ids: &[u32]) -> String {
    nearpage_machine::idlist::format(ids)
}
