//! What a scenario compares: patches of the series of 2023, and models.

use std::ops::Range;

use nearpage::{Model, ZoneInstances};
use serde::Deserialize;
use toml::Spanned;

use super::model_called;
use super::wrong::{Checked, wrong};

/// A model that is compared with others.
#[derive(Clone, PartialEq, Debug)]
pub struct Variant {
    /// What rows call it.
    pub name: String,
    /// The rules.
    pub model: Model,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct VariantsTable {
    patches: Option<Spanned<Vec<Spanned<u8>>>>,
    models: Option<Spanned<Vec<Spanned<ModelTable>>>>,
}

/// A model by its name alone, or with some rules of its own.
#[derive(Clone, Deserialize)]
#[serde(
    untagged,
    expecting = "accepted: the name of a model, or { model = NAME, instances = 1 to 64, batch_scale_max = 0 to 6 }"
)]
enum ModelTable {
    Name(String),
    Changed(ChangedTable),
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct ChangedTable {
    model: String,
    instances: Option<i64>,
    batch_scale_max: Option<i64>,
}

impl VariantsTable {
    /// The patches that messages and lifetimes are compared under; others have none.
    pub(super) fn patches(&self, are_compared: bool, span: Range<usize>) -> Checked<Vec<u8>> {
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

    /// How many models there are.
    pub(super) fn models_count(&self) -> usize {
        self.models.as_ref().map_or(0, |models| models.get_ref().len())
    }

    /// The models that contention is compared between; others have none.
    pub(super) fn models(&self, are_compared: bool, span: Range<usize>) -> Checked<Vec<Variant>> {
        match &self.models {
            Some(models) if !are_compared => {
                wrong(models.span(), "variants.models belongs to contention")
            }
            None if !are_compared => Ok(Vec::new()),
            Some(models) if !models.get_ref().is_empty() => {
                models.get_ref().iter().map(variant).collect()
            }
            other => {
                let message = "variants.models: one or more are needed";
                wrong(other.as_ref().map_or(span, Spanned::span), message)
            }
        }
    }
}

fn variant(table: &Spanned<ModelTable>) -> Checked<Variant> {
    let span = table.span();
    let ChangedTable { model: name, instances, batch_scale_max } = match table.get_ref().clone() {
        ModelTable::Changed(changed) => changed,
        ModelTable::Name(model) => ChangedTable { model, instances: None, batch_scale_max: None },
    };
    let mut model = model_called(&name, span.clone())?;
    let mut parts = vec![name];
    if let Some(count) = instances {
        model.zone_instances = instances_of(count, span.clone())?;
        parts.push(format!("{count} instances"));
    }
    if let Some(scale) = batch_scale_max {
        model.pcp.batch_scale_max = match u8::try_from(scale) {
            Ok(scale @ 0..=6) => scale,
            _ => return wrong(span, format!("batch_scale_max is {scale}; accepted: 0 to 6")),
        };
        parts.push(format!("scale {scale}"));
    }
    Ok(Variant { name: parts.join(", "), model })
}

/// So many instances of each Normal zone.
pub(super) fn instances_of(count: i64, span: Range<usize>) -> Checked<ZoneInstances> {
    match u16::try_from(count) {
        Ok(count @ 1..=64) => Ok(ZoneInstances::Count(count)),
        _ => wrong(span, format!("instances is {count}; accepted: 1 to 64")),
    }
}
