//! The entry.

use nearpage::Model;
use nearpage_machine::tunable::{SettingKey, Tunable};
use nearpage_machine::work::Observer;
use nearpage_machine::{catalog, escaped};
use serde::Serialize;

use crate::error::WebError;
use crate::kind::Kind;
use crate::question::Question;
use crate::{log, machine, recording};

/// An answer.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Answer {
    /// What the content was taken for.
    pub kind: Kind,
    /// The JSON that the command prints.
    pub document: String,
    /// The page of HTML that the command writes; empty where it writes none.
    pub page: String,
    /// The command.
    pub command: String,
    /// What the page shows beside the document, as JSON.
    pub view: String,
}

/// Answers a question about a content.
///
/// # Errors
///
/// What the library says: the content cannot be read, or the question makes no sense of it.
pub fn answer(
    question: &Question,
    content: &[u8],
    observer: &dyn Observer,
) -> Result<Answer, WebError> {
    let kind = question.kind.unwrap_or_else(|| Kind::of(content));
    let (document, page, view) = match kind {
        Kind::Machine => machine::answer(question, content)?,
        Kind::Log => log::answer(question, content)?,
        Kind::Recording => recording::answer(question, content, observer)?,
        Kind::Trace => recording::answer_of_trace(question, content, observer)?,
    };
    let command = escaped(&question.origin(kind).command).into_owned();
    Ok(Answer { kind, document, page, command, view })
}

/// What may be asked: rules, settings and machines by name.
#[derive(Serialize)]
struct About {
    version: &'static str,
    models: Vec<(&'static str, &'static str)>,
    settings: Vec<Key>,
    tunables: Vec<Key>,
    machines: Vec<&'static str>,
}

#[derive(Serialize)]
struct Key {
    name: &'static str,
    values: &'static str,
    meaning: &'static str,
}

impl From<SettingKey> for Key {
    fn from(key: SettingKey) -> Key {
        Key { name: key.name, values: key.values, meaning: key.meaning }
    }
}

/// What may be asked, as JSON.
pub fn about() -> String {
    let all = About {
        version: env!("CARGO_PKG_VERSION"),
        models: Model::ALL.iter().map(|model| (model.name, model.about())).collect(),
        settings: nearpage_machine::tunable::Override::KEYS.map(Key::from).into(),
        tunables: Tunable::keys().map(Key::from).collect(),
        machines: catalog::names().collect(),
    };
    serde_json::to_string(&all).unwrap_or_default()
}
