//! The patches of the series of 2023 that a scenario compares.

use std::ops::Range;

use serde::Deserialize;
use toml::Spanned;

use super::wrong::{Checked, wrong};

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct VariantsTable {
    patches: Option<Spanned<Vec<Spanned<u8>>>>,
}

impl VariantsTable {
    /// The patches that messages and lifetimes are compared under; others have none.
    pub(super) fn check(&self, are_compared: bool, span: Range<usize>) -> Checked<Vec<u8>> {
        let patches = match &self.patches {
            Some(patches) if !are_compared => {
                let message = "variants.patches belongs to messages and process-lifetimes";
                return wrong(patches.span(), message);
            }
            None if !are_compared => return Ok(Vec::new()),
            Some(patches) if !patches.get_ref().is_empty() => patches.get_ref(),
            Some(_) | None => {
                let message = "variants.patches: one or more are needed; accepted: 0 to 10";
                return wrong(self.patches.as_ref().map_or(span, Spanned::span), message);
            }
        };
        let patch = |patch: &Spanned<u8>| match *patch.get_ref() {
            n if n <= 10 => Ok(n),
            n => wrong(patch.span(), format!("variants.patches has {n}; accepted: 0 to 10")),
        };
        patches.iter().map(patch).collect()
    }
}
