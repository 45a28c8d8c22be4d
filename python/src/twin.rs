//! Twins of recordings, and loads in figures.

use std::path::PathBuf;
use std::sync::Arc;

use nearpage_replay::Replay;
use nearpage_replay::twin::{LIFETIMES_NS, Profile as Figures, SLICES_NS, TwinWish, write_twin};
use pyo3::prelude::*;

use crate::convert::document;
use crate::error::failed;
use crate::guard::long;
use crate::table::{Columns, Table};

/// A load in figures that do not depend on its length nor on its machine's size.
#[pyclass(frozen, module = "nearpage")]
pub(crate) struct Profile {
    figures: Figures,
}

#[pymethods]
impl Profile {
    /// How far another one is, figure by figure.
    fn distance(&self, other: PyRef<'_, Profile>) -> std::collections::BTreeMap<&'static str, f64> {
        let of = self.figures.distance(&other.figures);
        [
            ("rates", of.rates),
            ("orders", of.orders),
            ("types", of.types),
            ("lifetimes", of.lifetimes),
            ("freed_elsewhere", of.freed_elsewhere),
            ("bursts", of.bursts),
            ("runs", of.runs),
            ("frees_of_old", of.frees_of_old),
        ]
        .into()
    }

    #[getter]
    fn figures(&self) -> PyResult<Table> {
        let of = &self.figures;
        let mut rows: Vec<(String, f64)> = vec![
            ("seconds".into(), of.seconds),
            ("cpus".into(), of.cpus as f64),
            ("allocs_per_cpu_second".into(), of.allocs_per_cpu_second),
            ("frees_per_cpu_second".into(), of.frees_per_cpu_second),
            ("freed_elsewhere".into(), of.freed_elsewhere),
            ("alloc_run".into(), of.alloc_run),
            ("free_run".into(), of.free_run),
            ("frees_of_old".into(), of.frees_of_old),
        ];
        let shares = of.orders.iter().enumerate();
        rows.extend(shares.map(|(order, &share)| (format!("order_{order}"), share)));
        let types = ["unmovable", "movable", "reclaimable", "other_types"];
        rows.extend(types.into_iter().zip(of.types).map(|(name, share)| (name.into(), share)));
        let ends = LIFETIMES_NS.iter().map(|ns| format!("lived_up_to_{ns}_ns"));
        let ends = ends.chain(["lived_longer".into(), "lived_past_the_end".into()]);
        rows.extend(ends.zip(of.lifetimes));
        let slices = SLICES_NS.iter().map(|ns| format!("bursts_in_{ns}_ns"));
        rows.extend(slices.zip(of.bursts));
        Columns::default()
            .text("figure", rows.iter().map(|(name, _)| Some(name)))
            .real("value", rows.iter().map(|(_, value)| Some(*value)))
            .table()
    }

    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        document(py, &self.figures)
    }

    fn __repr__(&self) -> String {
        let Figures { seconds, cpus, allocs_per_cpu_second, .. } = &self.figures;
        format!(
            "Profile({seconds:.1} s, {cpus} CPUs, {allocs_per_cpu_second:.0} allocations a second and CPU)"
        )
    }

    fn _repr_html_(&self, py: Python<'_>) -> PyResult<String> {
        Bound::new(py, self.figures()?)?.call_method0("_repr_html_")?.extract()
    }
}

/// `Bundle.profile()`.
pub(crate) fn profile(
    replay: &Arc<Replay>,
    py: Python<'_>,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<Profile> {
    let (replay, name) = (replay.clone(), replay.bundle().name().to_owned());
    let figures = long(py, progress, move |course| Figures::of(&replay, course))?;
    let figures = figures.map_err(|error| failed(&name, &error))?;
    Ok(Profile { figures })
}

/// `Bundle.twin()`.
pub(crate) fn twin(
    replay: &Arc<Replay>,
    py: Python<'_>,
    folder: PathBuf,
    wish: TwinWish,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<Replay> {
    let (replay, name) = (replay.clone(), replay.bundle().name().to_owned());
    let written = long(py, progress, move |course| {
        write_twin(&replay, &wish, &folder, course)?;
        Replay::open(&folder, &nearpage_machine::Budget::DEFAULT)
    })?;
    written.map_err(|error| failed(&name, &error))
}
