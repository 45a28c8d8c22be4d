//! Arguments and results between Python and the libraries.

use nearpage::Model;
use nearpage_bundle::predict::ModelChoice;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use serde::Serialize;

use crate::error::Class;

/// The rules called so. `auto` is for recordings, which tell their kernel.
pub(crate) fn model(name: &str) -> PyResult<Model> {
    Model::named(name)
        .map_err(|error| Class::Argument.error(Some("model".into()), format!("model={error}")))
}

/// The rules for a recording.
pub(crate) fn model_for(name: &str, kernel: &str) -> PyResult<Model> {
    match name {
        "auto" => Ok(ModelChoice::Auto.for_kernel(kernel).model),
        _ => model(name),
    }
}

/// A document of a library as Python's own dicts, lists, numbers and strings.
pub(crate) fn document<'py>(
    py: Python<'py>,
    document: &impl Serialize,
) -> PyResult<Bound<'py, PyAny>> {
    let text =
        serde_json::to_string(document).map_err(|error| Class::Internal.error(None, error))?;
    py.import("json")?.call_method1("loads", (text,))
}

/// The values of a setting that are to be combined. A text is one value, not its letters.
pub(crate) fn values(key: &Bound<'_, PyAny>, values: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    let wrong = || {
        let shown = values.repr().map_or_else(|_| String::new(), |text| text.to_string());
        let message = format!("over: {key} has {shown}, expected a list of values");
        Class::Argument.error(Some("over".into()), message)
    };
    if values.is_instance_of::<PyString>() || values.is_instance_of::<PyBytes>() {
        return Err(wrong());
    }
    let all = values.try_iter().map_err(|_| wrong())?.map(|value| setting(&value?));
    let all = all.collect::<PyResult<Vec<String>>>()?;
    if all.is_empty() {
        let message = format!("over: {key} has no value, expected a list of one or more");
        return Err(Class::Argument.error(Some("over".into()), message));
    }
    Ok(all)
}

/// A value of a setting as its text: `True` is `on`.
pub(crate) fn setting(value: &Bound<'_, PyAny>) -> PyResult<String> {
    match value.extract::<bool>() {
        Ok(true) => Ok("on".into()),
        Ok(false) => Ok("off".into()),
        // Python shows no number of thousands of digits.
        Err(_) => value.str().map(|text| text.to_string()).map_err(|_| {
            let message = "settings: a value cannot be shown, expected a number or a text";
            Class::Argument.error(Some("settings".into()), message)
        }),
    }
}
