//! `nearpage topo --bundle`: what Linux prints about a recorded machine.

use std::path::Path;

use nearpage::Model;
use nearpage_bundle::predict::{PredictError, Prediction, PredictionDocument, Wishes, compare};
use nearpage_bundle::{Capture, RecordedMachine, Recording};
use nearpage_machine::text::{Unknown, dot, hwloc, numactl, zoneinfo};
use nearpage_machine::{Lists, Machine, Replaced, WithSet};

use super::text::{RECORDED, Text};
use super::{AS_AT_BOOT, Format, TopoArgs, has_same_lists};
use crate::commands::{CommandError, input, print, print_json};
use crate::terminal;

/// Predicts a capture and prints it.
pub(super) fn run(path: &Path, arguments: &TopoArgs, format: Format) -> Result<(), CommandError> {
    let model = arguments.model.unwrap_or_default();
    if model.is(&Model::NEARPAGE) {
        let problem = "--bundle predicts what Linux prints: --model takes a linux-* model or auto";
        return Err(CommandError::Usage(problem.into()));
    }
    let wishes = Wishes { model, settings: arguments.overrides()? };
    let recording = input::read_recording(path, &arguments.limit.budget())?;
    let capture = recording.capture(arguments.capture.as_deref())?;
    let recorded = capture.machine()?;
    let mut prediction = Prediction::new(&recording, capture, &recorded, &wishes)?;
    let unchanged = Wishes { settings: Vec::new(), ..wishes.clone() };
    let unchanged = Prediction::new(&recording, capture, &recorded, &unchanged)?;
    let set = Replaced::all(&wishes.settings, &unchanged.plan, &prediction.plan);
    if arguments.rebuilt {
        prediction.plan = prediction.rebuilt();
    }
    terminal::note(summary(&prediction));
    arguments.tell_idle(format, &set);
    if arguments.rebuilt && format.has_lists() && has_same_lists(&prediction.plan, &unchanged.plan)
    {
        terminal::note(AS_AT_BOOT);
    }
    if prediction.model.is_of_other_kernel && arguments.set.is_empty() {
        terminal::note(differences(&recording, capture, &recorded, &prediction)?);
    }
    let machine = &recorded.machine;
    let warnings: Vec<String> = machine.notes.iter().map(ToString::to_string).collect();
    if format != Format::Text {
        for warning in &warnings {
            terminal::note(format_args!("{}: {warning}", recording.source));
        }
    }
    match format {
        Format::Zoneinfo => print(&zoneinfo(&prediction.plan, Unknown::Zero)),
        Format::Fallback => print(&prediction.plan.fallback_lines()),
        Format::Json => {
            print_json(&WithSet { document: PredictionDocument::new(&prediction), set: &set })
        }
        Format::Numactl => print(&numactl(machine)),
        Format::Dot => print(&dot(machine)),
        Format::Hwloc => print(&hwloc(machine)),
        Format::Text => print(&text(&recording, machine, &prediction, &set, &warnings).format()),
    }
}

fn text<'a>(
    recording: &Recording,
    machine: &'a Machine,
    prediction: &'a Prediction,
    set: &'a [Replaced],
    warnings: &'a [String],
) -> Text<'a> {
    Text {
        source: format!("{}, capture {}", recording.source, prediction.capture),
        addresses: RECORDED,
        process: None,
        machine,
        plan: &prediction.plan,
        set,
        warnings,
    }
}

/// How many fields differ under the rules of another kernel.
fn differences(
    recording: &Recording,
    capture: &Capture,
    machine: &RecordedMachine,
    prediction: &Prediction,
) -> Result<String, PredictError> {
    let compared = compare(recording, capture, machine, prediction)?;
    let differing = compared.fields.iter().filter(|field| !field.is_match()).count();
    Ok(match differing {
        0 => "nothing that this kernel printed differs".into(),
        _ => format!(
            "{differing} fields that this kernel printed differ; nearpage verify names them"
        ),
    })
}

/// The capture, its kernel and the rules.
fn summary(prediction: &Prediction) -> String {
    let Prediction { kernel, capture, model, .. } = prediction;
    let kernel = if kernel.is_empty() { "an unknown kernel" } else { kernel };
    let name = model.model.name;
    let other = if model.is_of_other_kernel { ", another kernel" } else { "" };
    let lists = match prediction.plan.lists {
        Lists::Boot => "",
        Lists::Rebuilt => ", zonelists as after a rebuild",
    };
    format!("capture {capture} of {kernel}; model {name}{other}{lists}")
}
