//! nearpage for Python: the native half of the package. It binds the library crates; `nearpage/__init__.py` names what users see,
//! and the stubs beside it document it.
//!
//! | module | owns |
//! |---|---|
//! | `error`, `guard` | exceptions with place and what is accepted; no panic crosses, long calls hold no GIL, Ctrl-C |
//! | `convert`, `named`, `table` | arguments, numbers among them, documents; tables by the Arrow C data interface |
//! | `machine` | `Machine` |
//! | `events`, `report`, `replay` | streams of events; results; `Bundle` and comparisons of rules |
//! | `files`, `fleet` | the files of a bundle; what `nearpage.fleet` measures with |
//! | `twin`, `real` | twins and profiles; `verify`, `bench`, `record` |
//! | `lab`, `advice`, `watch` | `nearpage.lab`; `doctor` and `explain_log`; `top` and `tape` |
//! | `memory`, `objects` | `Memory`: pages, limits, counters; caches of objects, memory of any size |

mod advice;
mod convert;
mod error;
mod events;
mod files;
mod fleet;
mod guard;
mod lab;
mod machine;
mod memory;
mod named;
mod objects;
mod real;
mod replay;
mod report;
mod table;
mod twin;
mod watch;

use pyo3::prelude::*;

/// Panics. The tests of the package see that it comes as an exception, from short calls and from long ones.
#[pyfunction]
fn _panic(py: Python<'_>, is_long: bool) -> PyResult<()> {
    match is_long {
        true => guard::long(py, None, |_| panic!("asked to")),
        false => guard::short(py, || panic!("asked to")),
    }
}

/// The names of all sets of rules, each with a line about it.
#[pyfunction]
fn models() -> Vec<(&'static str, &'static str)> {
    nearpage::Model::ALL.iter().map(|model| (model.name, model.about())).collect()
}

/// A page around a body of its own: all pages of nearpage have the same frame.
#[pyfunction]
fn framed_page(title: &str, style: &str, body: &str) -> String {
    nearpage_report::framed(title, style, body)
}

/// The native half of the package `nearpage`.
#[pymodule]
fn _nearpage(module: &Bound<'_, PyModule>) -> PyResult<()> {
    guard::keep_panics();
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(_panic, module)?)?;
    module.add_function(wrap_pyfunction!(models, module)?)?;
    module.add_function(wrap_pyfunction!(framed_page, module)?)?;
    module.add_class::<table::Table>()?;
    module.add_class::<machine::Machine>()?;
    module.add_class::<machine::Node>()?;
    module.add_class::<replay::Bundle>()?;
    module.add_class::<events::Events>()?;
    module.add_class::<events::EventTables>()?;
    module.add_class::<report::Report>()?;
    module.add_class::<report::Fidelity>()?;
    module.add_class::<report::BoundAnswer>()?;
    module.add_class::<report::Rules>()?;
    module.add_function(wrap_pyfunction!(replay::compare_rules, module)?)?;
    module.add_function(wrap_pyfunction!(replay::settings, module)?)?;
    module.add_function(wrap_pyfunction!(replay::_read_events, module)?)?;
    module.add_class::<files::BundleFiles>()?;
    module.add_class::<fleet::Prepared>()?;
    module.add_function(wrap_pyfunction!(fleet::check_settings, module)?)?;
    module.add_function(wrap_pyfunction!(fleet::machine_facts, module)?)?;
    module.add_function(wrap_pyfunction!(fleet::model_version, module)?)?;
    module.add_function(wrap_pyfunction!(table::unpickled, module)?)?;
    module.add_function(wrap_pyfunction!(fleet::what_if_machine, module)?)?;
    module.add_class::<lab::LabReport>()?;
    module.add_function(wrap_pyfunction!(lab::run, module)?)?;
    module.add_function(wrap_pyfunction!(lab::sweep, module)?)?;
    module.add_function(wrap_pyfunction!(lab::scenarios, module)?)?;
    module.add_class::<advice::Diagnosis>()?;
    module.add_function(wrap_pyfunction!(advice::doctor, module)?)?;
    module.add_function(wrap_pyfunction!(advice::explain_log, module)?)?;
    module.add_class::<twin::Profile>()?;
    module.add_class::<real::Verification>()?;
    module.add_class::<real::BenchReport>()?;
    module.add_function(wrap_pyfunction!(real::verify, module)?)?;
    module.add_function(wrap_pyfunction!(real::bench, module)?)?;
    module.add_function(wrap_pyfunction!(real::record, module)?)?;
    module.add_class::<memory::Memory>()?;
    module.add_class::<memory::Pages>()?;
    module.add_class::<objects::Cache>()?;
    module.add_class::<objects::Object>()?;
    module.add_class::<watch::Moment>()?;
    module.add_function(wrap_pyfunction!(watch::top, module)?)?;
    module.add_function(wrap_pyfunction!(watch::tape, module)?)?;
    Ok(())
}
