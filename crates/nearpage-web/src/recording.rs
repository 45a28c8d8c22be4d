//! A recording: replayed, compared, and asked what if.

use nearpage_machine::Budget;
use nearpage_machine::work::Observer;
use nearpage_replay::{Bundle, Input, Options, Replay, Study, Tunable, Wish};
use nearpage_report::replay::page_of_report;

use crate::error::WebError;
use crate::kind::Kind;
use crate::machine::named;
use crate::question::Question;

pub(crate) fn answer(
    question: &Question,
    content: &[u8],
    observer: &dyn Observer,
) -> Result<(String, String, String), WebError> {
    let replay = Replay::of(Bundle::read(&question.name, content, &Budget::DEFAULT)?)?;
    let kernel = &replay.bundle().recording().kernel;
    let options = Options {
        starts: question.starts,
        explain: question.explain.as_deref().map(str::parse).transpose()?,
        wish: wish(question, kernel)?,
        ..Options::default()
    };
    let report = replay.run(&options, observer)?;
    let document = serde_json::to_string_pretty(&report)? + "\n";
    let page = page_of_report(&report, &question.origin(Kind::Recording));
    Ok((document, page, "{}".into()))
}

/// A trace alone is played on the machine that is named.
pub(crate) fn answer_of_trace(
    question: &Question,
    content: &[u8],
    observer: &dyn Observer,
) -> Result<(String, String, String), WebError> {
    let trace = match Input::read(&question.name, content, &Budget::DEFAULT, observer)? {
        Input::Trace(trace) => trace,
        Input::Bundle(_) => return answer(question, content, observer),
    };
    let asked = wish(question, trace.facts().kernel.as_deref().unwrap_or(""))?;
    let Some(machine) = asked.machine else {
        return Err(nearpage_replay::ReplayError::NoMachine { input: question.name.clone() }.into());
    };
    let study = Study {
        rules: asked.model.into_iter().collect(),
        wish: Wish { machine: None, model: None, ..asked },
        starts: 0,
        moments: 0,
    };
    let answer = trace.study(&machine, &study, observer)?;
    Ok((serde_json::to_string_pretty(&answer)? + "\n", String::new(), "{}".into()))
}

/// What is to be different.
fn wish(question: &Question, kernel: &str) -> Result<Wish, WebError> {
    let tunables: Vec<Tunable> =
        question.set.iter().map(|given| given.parse()).collect::<Result<_, _>>()?;
    Ok(Wish {
        // The recorded kernel's own rules are no change.
        model: match question.model()? {
            Some(nearpage_bundle::predict::ModelChoice::Auto) | None => None,
            Some(choice) => Some(choice.for_kernel(kernel).model),
        },
        tunables,
        machine: question.machine.as_deref().map(named).transpose()?,
        cpus: question.map_cpus.rule(),
        repeat: 1,
        ..Wish::default()
    })
}
