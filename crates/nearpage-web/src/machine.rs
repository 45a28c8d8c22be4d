//! A machine: what a kernel makes of it.

use std::fmt::Write;

use nearpage::{Model, Settings};
use nearpage_bundle::predict::ModelChoice;
use nearpage_machine::text::{Unknown, zoneinfo};
use nearpage_machine::tunable::Override;
use nearpage_machine::{
    Budget, InputError, InputProblem, Lists, Machine, MachineDescription, MachineDocument, Place,
    Plan, Replaced, WithSet, catalog, idlist, shown,
};
use serde::Serialize;

use crate::error::WebError;
use crate::question::Question;

/// What the page shows beside the document.
#[derive(Serialize)]
struct View<'a> {
    /// The document without settings, if some are asked for.
    before: Option<MachineDocument<'a>>,
    /// The machine in the short form, which fits into an address, if it has one.
    short_form: Option<String>,
    /// The lines that a kernel logs.
    fallback: String,
    /// /proc/zoneinfo, all memory free.
    zoneinfo: String,
    /// What settings are without those that are asked for.
    unset: Vec<(&'static str, String)>,
}

/// Zoneinfo is longer than the page shows from here on: a row for each CPU and zone.
const ZONEINFO_BYTES_MOST: usize = 1 << 20;
/// An address is no longer.
const SHORT_FORM_BYTES_MOST: usize = 4096;

pub(crate) fn answer(
    question: &Question,
    content: &[u8],
) -> Result<(String, String, String), WebError> {
    let description = described(&question.name, content)?;
    let model = match question.model()?.unwrap_or(ModelChoice::Of(Model::NEARPAGE)) {
        ModelChoice::Of(model) => model,
        ModelChoice::Auto => return Err(WebError::Auto),
    };
    let set: Vec<Override> =
        question.set.iter().map(|given| Override::parse(given)).collect::<Result<_, _>>()?;
    let plan = |set: &[Override], lists| {
        let change = |settings: &mut Settings| set.iter().for_each(|one| one.apply(settings));
        Plan::with(&description, model, lists, change).map_err(|error| {
            let place = Place::Input(shown(&description.source).to_string());
            InputProblem::Setting(error).at(&place)
        })
    };
    let lists = if question.rebuilt { Lists::Rebuilt } else { Lists::Boot };
    let before = plan(&[], Lists::Boot)?;
    let plan = plan(&set, lists)?;
    let replaced = Replaced::all(&set, &before, &plan);
    let document = WithSet { document: MachineDocument::new(&description, &plan), set: &replaced };
    let document = serde_json::to_string_pretty(&document)? + "\n";
    let known = before.settings.with(|of| of.min_free_kbytes = Some(before.min_free_kbytes));
    let zero = Override::KEYS.map(|key| {
        let value = if key.name == "vm.watermark_scale_factor" { "1" } else { "0" };
        Override::parse(&format!("{}={value}", key.name))
    });
    let unset = zero.into_iter().flatten().map(|key| (key.key(), key.value_in(&known)));
    let is_short = plan.nodes.len() <= 64;
    let mut text =
        if is_short { zoneinfo(&plan, Unknown::AllFree).to_string() } else { String::new() };
    text.truncate(text.floor_char_boundary(ZONEINFO_BYTES_MOST));
    let view = View {
        before: (!set.is_empty()).then(|| MachineDocument::new(&description, &before)),
        short_form: short_form(&description.machine),
        fallback: if is_short { plan.fallback_lines().to_string() } else { String::new() },
        zoneinfo: text,
        unset: unset.collect(),
    };
    Ok((document, String::new(), serde_json::to_string(&view)?))
}

/// The machine that a content describes; an empty one of the catalogue by its name.
pub(crate) fn described(name: &str, content: &[u8]) -> Result<MachineDescription, InputError> {
    match catalog::machine(name).filter(|_| content.is_empty()) {
        Some(machine) => MachineDescription::new(name.into(), machine),
        None => MachineDescription::from_reader(name, content, &Budget::DEFAULT),
    }
}

/// The machine that a text names or describes.
pub(crate) fn named(text: &str) -> Result<MachineDescription, InputError> {
    let text = text.trim();
    match catalog::machine(text) {
        Some(machine) => MachineDescription::new(text.into(), machine),
        // A machine in the short form is named by it.
        None => {
            let name = if text.starts_with("--numa") { text } else { "another machine" };
            MachineDescription::from_reader(name, text.as_bytes(), &Budget::DEFAULT)
        }
    }
}

/// A machine as words, if it has only what they say: nodes numbered from 0, of known sizes, with 4 KiB pages.
fn short_form(machine: &Machine) -> Option<String> {
    const PAGE_BYTES: u64 = 4096;
    if machine.page_bytes != PAGE_BYTES {
        return None;
    }
    let mut text = String::new();
    for (at, node) in machine.nodes.iter().enumerate() {
        let bytes = node.memory_bytes.filter(|bytes| bytes.is_multiple_of(PAGE_BYTES))?;
        if node.id.0 as usize != at {
            return None;
        }
        let (size, unit) = match bytes {
            0 => (0, ""),
            bytes if bytes.is_multiple_of(1 << 30) => (bytes >> 30, "G"),
            bytes if bytes.is_multiple_of(1 << 20) => (bytes >> 20, "M"),
            bytes => (bytes >> 10, "K"),
        };
        let _ = write!(text, "--numa {size}{unit}");
        if !node.cpus.is_empty() {
            let cpus: Vec<u32> = node.cpus.iter().map(|cpu| cpu.0).collect();
            let _ = write!(text, ",cpus={}", idlist::format(&cpus));
        }
        text.push(' ');
    }
    let count = machine.nodes.len();
    let distance = |from: usize, to: usize| machine.distances.get(from * count + to).copied();
    for from in 0..count {
        for to in 0..count {
            let (there, back) = (distance(from, to)?, distance(to, from)?);
            let usual = if from == to { 10 } else { 20 };
            // One way stands for both.
            if (there != usual || back != usual) && (from <= to || there != back) {
                let _ = write!(text, "--numa-distance {from},{to}={there} ");
            }
        }
    }
    let text = text.trim_end().to_owned();
    (text.len() <= SHORT_FORM_BYTES_MOST).then_some(text)
}
