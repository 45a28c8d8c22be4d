//! The result of a rule.

use serde::Serialize;

/// The level of a finding.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it should be.
    Good,
    /// Worth knowing. Whether to act depends on the program.
    Note,
    /// Costs an allocator speed, memory or placement, or cannot be judged.
    Problem,
}

impl Level {
    /// The word for the level.
    pub const fn name(self) -> &'static str {
        match self {
            Level::Good => "good",
            Level::Note => "note",
            Level::Problem => "problem",
        }
    }
}

/// The result of one rule.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Finding {
    /// The name of the check; names do not change.
    pub check: &'static str,
    /// The level of a finding.
    pub level: Level,
    /// The value that was found.
    pub found: String,
    /// What the value means for an allocator.
    pub meaning: String,
    /// What to do, if anything.
    pub advice: Option<String>,
}

impl Finding {
    pub(crate) fn good(
        check: &'static str,
        found: impl ToString,
        meaning: impl Into<String>,
    ) -> Finding {
        let (found, meaning) = (found.to_string(), meaning.into());
        Finding { check, level: Level::Good, found, meaning, advice: None }
    }

    pub(crate) fn note(
        check: &'static str,
        found: impl ToString,
        meaning: impl Into<String>,
    ) -> Finding {
        Finding { level: Level::Note, ..Finding::good(check, found, meaning) }
    }

    pub(crate) fn problem(
        check: &'static str,
        found: impl ToString,
        meaning: impl Into<String>,
    ) -> Finding {
        Finding { level: Level::Problem, ..Finding::good(check, found, meaning) }
    }

    pub(crate) fn advise(self, advice: impl Into<String>) -> Finding {
        Finding { advice: Some(advice.into()), ..self }
    }
}
