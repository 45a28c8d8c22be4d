//! Results of replays: typed, and as tables.

use std::collections::BTreeMap;

use nearpage_replay::rules::{RuleComparison, RuleRow};
use nearpage_replay::{
    BoundPoint, Point, Report as ReplayReport, Row, SeriesPoint, Standing, Totals, Yardstick,
};
use nearpage_report::MachineView;
use pyo3::prelude::*;

use crate::convert::document;
use crate::table::{Columns, Table, escaped};

/// A finished replay.
#[pyclass(frozen, module = "nearpage")]
pub(crate) struct Report {
    pub(crate) report: ReplayReport,
}

/// How exactly a replay predicts.
#[pyclass(frozen, module = "nearpage")]
pub(crate) struct Fidelity {
    #[pyo3(get)]
    percent: Option<f64>,
    #[pyo3(get)]
    percent_known_state: Option<f64>,
    #[pyo3(get)]
    meaning: &'static str,
    #[pyo3(get)]
    worst: Option<(&'static str, f64)>,
    #[pyo3(get)]
    scores: Py<Table>,
    #[pyo3(get)]
    starts: Option<(u64, f64)>,
    #[pyo3(get)]
    rows: Py<Table>,
}

#[pymethods]
impl Fidelity {
    fn __float__(&self) -> f64 {
        self.percent.unwrap_or(f64::NAN)
    }

    fn __repr__(&self) -> String {
        match self.percent {
            Some(percent) => {
                let worst = self
                    .worst
                    .map_or(String::new(), |(of, percent)| format!(", worst {of} {percent:.2} %"));
                format!("Fidelity({percent:.2} %{worst})")
            }
            None => "Fidelity(nothing is recorded to compare with)".into(),
        }
    }

    fn _repr_html_(&self, py: Python<'_>) -> PyResult<String> {
        let rows: String = self.rows.bind(py).call_method0("_repr_html_")?.extract()?;
        let scores: String = self.scores.bind(py).call_method0("_repr_html_")?.extract()?;
        let [what, meaning] = [&*self.__repr__(), self.meaning].map(escaped);
        Ok(format!("<p><b>{what}</b>: {meaning}</p>{scores}{rows}"))
    }
}

fn rows_table<'r>(rows: impl Iterator<Item = &'r Row> + Clone) -> PyResult<Table> {
    Columns::default()
        .text("quantity", rows.clone().map(|row| Some(row.quantity)))
        .text("where", rows.clone().map(|row| Some(&*row.place)))
        .text("at", rows.clone().map(|row| row.moment.as_deref()))
        .count("predicted", rows.clone().map(|row| row.predicted))
        .count("recorded", rows.clone().map(|row| row.recorded))
        .real("error_percent", rows.clone().map(|row| row.error_percent))
        .count("range_least", rows.clone().map(|row| row.drawn_range.map(|of| of[0])))
        .count("range_most", rows.clone().map(|row| row.drawn_range.map(|of| of[1])))
        .switch("is_scored", rows.map(|row| Some(row.is_scored)))
        .table()
}

/// A figure of totals, by its name.
type Figures = Vec<(String, Option<f64>)>;

fn figures(of: &Totals) -> Figures {
    let count = |count: u64| Some(count as f64);
    let maybe = |count: Option<u64>| count.map(|count| count as f64);
    let mut all: Figures = [
        ("lock_acquisitions", maybe(of.lock_acquisitions)),
        ("most_pages_per_hold", maybe(of.most_pages_per_hold)),
        ("refills", count(of.refills)),
        ("refill_pages", count(of.refill_pages)),
        ("drains", count(of.drains)),
        ("drain_pages", count(of.drain_pages)),
        ("longest_run_pages", count(of.longest_run_pages)),
        ("cached_bytes", count(of.cached_bytes)),
        ("remote_pages", count(of.remote_pages)),
        ("kept_pages_mean", of.kept_pages_mean),
        ("kept_pages_most", maybe(of.kept_pages_most)),
        ("kept_pages_most_of_cpu", maybe(of.kept_pages_most_of_cpu)),
        ("kept_pages_end", maybe(of.kept_pages_end)),
        ("longest_hold_ns", of.longest_hold_ns),
        ("cpus", maybe(of.cpus)),
        ("model_ms", of.model_ms),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    all.extend(of.pages_by_node.iter().map(|(id, &n)| (format!("pages_of_node_{id}"), count(n))));
    all.extend(of.pages_by_reason.iter().map(|(why, &n)| (format!("pages_by_{why}"), count(n))));
    all
}

#[pymethods]
impl Report {
    #[getter]
    fn bundle(&self) -> &str {
        &self.report.bundle
    }

    #[getter]
    fn kernel(&self) -> &str {
        &self.report.kernel
    }

    #[getter]
    fn model(&self) -> &str {
        self.report.what_if.as_ref().map_or(self.report.model, |what_if| what_if.model)
    }

    #[getter]
    fn fidelity(&self, py: Python<'_>) -> PyResult<Fidelity> {
        let of = &self.report.fidelity;
        let rows = Py::new(py, rows_table(of.rows.iter())?)?;
        let scores = Columns::default()
            .text("quantity", of.scores.iter().map(|score| Some(score.quantity)))
            .text("of", of.scores.iter().map(|score| Some(score.of)))
            .count("moved", of.scores.iter().map(|score| Some(score.moved)))
            .count("wrong", of.scores.iter().map(|score| Some(score.wrong)))
            .real("percent", of.scores.iter().map(|score| score.percent))
            .table()?;
        Ok(Fidelity {
            percent: of.percent,
            percent_known_state: of.percent_known_state,
            meaning: of.meaning,
            worst: of.worst.map(|worst| (worst.quantity, worst.percent)),
            scores: Py::new(py, scores)?,
            starts: of.starts.map(|starts| (starts.drawn, starts.level_percent)),
            rows,
        })
    }

    #[getter]
    fn zones(&self) -> PyResult<Table> {
        rows_table(self.report.fidelity.rows.iter().filter(|row| row.place.starts_with("node ")))
    }

    #[getter]
    fn samples(&self) -> PyResult<Table> {
        let series = &self.report.series;
        type Line<'a> = (&'static str, &'a str, Option<u64>, SeriesPoint);
        let mut lines: Vec<Line<'_>> = Vec::new();
        for zone in &series.zones {
            lines.extend(zone.free.iter().map(|&point| ("free", &*zone.zone, None, point)));
        }
        for of in &series.pagesets {
            let cpu = Some(u64::from(of.cpu.0));
            lines.extend(of.count.iter().map(|&point| ("count", &*of.zone, cpu, point)));
            lines.extend(of.high.iter().map(|&point| ("high", &*of.zone, cpu, point)));
        }
        Columns::default()
            .count("sample", lines.iter().map(|line| Some(u64::from(line.3.sample))))
            .text("quantity", lines.iter().map(|line| Some(line.0)))
            .text("zone", lines.iter().map(|line| Some(line.1)))
            .count("cpu", lines.iter().map(|line| line.2))
            .count("recorded", lines.iter().map(|line| line.3.recorded))
            .count("predicted", lines.iter().map(|line| line.3.predicted))
            .table()
    }

    #[getter]
    fn totals(&self) -> PyResult<Option<Table>> {
        let Some(of) = &self.report.what_if else { return Ok(None) };
        let columns = [&of.recorded, &of.predicted, &of.what_if].map(figures);
        let mut names: Vec<&String> = Vec::new();
        for (name, _) in columns.iter().flatten() {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let maps = columns.each_ref().map(|figures| {
            figures.iter().map(|(name, value)| (name, *value)).collect::<BTreeMap<_, _>>()
        });
        let column =
            |at: usize| names.iter().map(|name| maps[at].get(*name).copied().flatten()).collect();
        let [recorded, predicted, what_if]: [Vec<Option<f64>>; 3] =
            [column(0), column(1), column(2)];
        let table = Columns::default()
            .text("quantity", names.iter().map(Some))
            .real("recorded", recorded)
            .real("predicted", predicted)
            .real("what_if", what_if);
        table.table().map(Some)
    }

    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        document(py, &self.report)
    }

    fn __repr__(&self) -> String {
        let ReplayReport { bundle, kernel, .. } = &self.report;
        let percent = self.report.fidelity.percent;
        let percent = percent.map_or("none".into(), |percent| format!("{percent:.2} %"));
        format!("Report({bundle:?}, kernel {kernel}, model {}, fidelity {percent})", self.model())
    }

    fn _repr_html_(slf: &Bound<'_, Self>) -> PyResult<String> {
        let (py, this) = (slf.py(), slf.get());
        let machine = &this.report.machine;
        let drawn = MachineView::of_topology(&machine.topology, machine.page_shift);
        let mut html = format!("<p><b>{}</b></p>", escaped(&this.__repr__()));
        html.push_str(&drawn.fragment(&this.report.bundle));
        let table = match this.totals()? {
            Some(totals) => totals,
            None => rows_table(this.report.fidelity.rows.iter().filter(|row| row.place == "all"))?,
        };
        let table = Bound::new(py, table)?;
        html.push_str(&table.call_method0("_repr_html_")?.extract::<String>()?);
        // The course of free pages, where there is matplotlib.
        let drawn: String =
            py.import("nearpage.plots")?.call_method1("_drawn", (slf,))?.extract()?;
        html.push_str(&drawn);
        Ok(html)
    }
}

/// The points of a sweep. Which are the best is known of all of them.
pub(crate) fn sweep_table(points: &[Point], are_all: bool) -> PyResult<Table> {
    let count = |of: fn(&Point) -> Option<u64>| points.iter().map(of);
    let keys = points.first().map(|point| point.settings.clone()).unwrap_or_default();
    let mut columns = Columns::default();
    for (at, first) in keys.iter().enumerate() {
        let key = first.split_once('=').map_or(&**first, |(key, _)| key);
        let value = |point: &'_ Point| -> Option<String> {
            point.settings.get(at)?.split_once('=').map(|(_, value)| value.to_owned())
        };
        columns = columns.text(key, points.iter().map(value));
    }
    columns
        .count("lock_acquisitions", count(|of| of.lock_acquisitions))
        .count("most_pages_per_hold", count(|of| of.most_pages_per_hold))
        .count("refills", count(|of| Some(of.refills)))
        .count("drains", count(|of| Some(of.drains)))
        .count("drain_pages", count(|of| Some(of.drain_pages)))
        .count("cached_bytes", count(|of| Some(of.cached_bytes)))
        .real("kept_pages_mean", points.iter().map(|of| of.kept_pages_mean))
        .real("model_ms", points.iter().map(|of| of.model_ms))
        .real("bound_ratio", points.iter().map(|of| Some(of.bound_ratio)))
        .count("least_holds", count(|of| Some(of.least_holds)))
        .switch("is_best", points.iter().map(|of| are_all.then_some(of.is_best)))
        .table()
}

/// Rules beside the fewest holds that would do.
#[pyclass(frozen, module = "nearpage")]
pub(crate) struct BoundAnswer {
    pub(crate) answer: Yardstick,
}

#[pymethods]
impl BoundAnswer {
    #[getter]
    fn models(&self) -> PyResult<Table> {
        let of = &self.answer.models;
        let count = |part: fn(&Standing) -> Option<u64>| of.iter().map(part);
        Columns::default()
            .text("model", of.iter().map(|of| Some(of.model)))
            .count("holds", count(|of| Some(of.holds)))
            .count("bound", count(|of| Some(of.bound)))
            .count("forced", count(|of| Some(of.forced)))
            .real("ratio", of.iter().map(|of| Some(of.ratio)))
            .text("class", of.iter().map(|of| Some(of.class.name())))
            .count("h", count(|of| Some(of.h)))
            .count("k", count(|of| Some(of.k)))
            .count("least_holds", count(|of| Some(of.least_holds)))
            .count("least_h", count(|of| of.least_h))
            .real("kept_pages_mean", of.iter().map(|of| Some(of.kept_pages_mean)))
            .count("kept_pages_max", count(|of| Some(of.kept_pages_max)))
            .count("longest_hold_pages", count(|of| Some(of.longest_hold_pages)))
            .real("longest_hold_ns", of.iter().map(|of| Some(of.longest_hold_ns)))
            .table()
    }

    #[getter]
    fn points(&self) -> PyResult<Table> {
        let of = &self.answer.points;
        let count = |part: fn(&BoundPoint) -> u64| of.iter().map(move |of| Some(part(of)));
        Columns::default()
            .count("h", count(|of| of.h))
            .count("k", count(|of| of.k))
            .text("class", of.iter().map(|of| Some(of.class.name())))
            .count("fewest", count(|of| of.fewest))
            .count("forced", count(|of| of.forced))
            .table()
    }

    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        document(py, &self.answer)
    }

    fn __repr__(&self) -> String {
        let Yardstick { bundle, models, points, .. } = &self.answer;
        format!("BoundAnswer({bundle:?}: {} models, {} points)", models.len(), points.len())
    }
}

/// Sets of rules, compared over bundles.
#[pyclass(frozen, module = "nearpage")]
pub(crate) struct Rules {
    pub(crate) compared: RuleComparison,
}

#[pymethods]
impl Rules {
    #[getter]
    fn rows(&self) -> PyResult<Table> {
        rule_rows(&self.compared.rows)
    }

    #[getter]
    fn first_pass(&self) -> PyResult<Table> {
        rule_rows(&self.compared.first_pass)
    }

    #[getter]
    fn means(&self, py: Python<'_>) -> PyResult<Table> {
        let of = &self.compared.means;
        let names = of.iter().map(|of| name(py, &of.figure)).collect::<PyResult<Vec<_>>>()?;
        Columns::default()
            .text("model", of.iter().map(|of| Some(of.model)))
            .text("figure", names.iter().map(Some))
            .real("geometric_mean", of.iter().map(|of| Some(of.geometric_mean)))
            .real("worst", of.iter().map(|of| Some(of.worst)))
            .text("worst_bundle", of.iter().map(|of| Some(&*of.worst_bundle)))
            .real("sum", of.iter().map(|of| Some(of.sum)))
            .real("reference_sum", of.iter().map(|of| Some(of.reference_sum)))
            .table()
    }

    #[getter]
    fn musts(&self, py: Python<'_>) -> PyResult<Table> {
        let of = &self.compared.musts;
        let names = of.iter().map(|of| name(py, &of.figure)).collect::<PyResult<Vec<_>>>()?;
        Columns::default()
            .text("model", of.iter().map(|of| Some(of.model)))
            .text("figure", names.iter().map(Some))
            .text("must", of.iter().map(|of| Some(of.must.to_string())))
            .text("goal", of.iter().map(|of| Some(of.goal.to_string())))
            .switch("is_met", of.iter().map(|of| Some(of.is_met)))
            .switch("reaches_goal", of.iter().map(|of| of.reaches_goal))
            .table()
    }

    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        document(py, &self.compared)
    }

    fn __repr__(&self) -> String {
        let RuleComparison { reference, rows, .. } = &self.compared;
        format!("Rules({} rows, reference {reference})", rows.len())
    }
}

/// The name that a figure has in JSON.
fn name(py: Python<'_>, figure: &nearpage_replay::rules::Figure) -> PyResult<String> {
    document(py, figure)?.extract()
}

fn rule_rows(of: &[RuleRow]) -> PyResult<Table> {
    let count = |part: fn(&RuleRow) -> u64| of.iter().map(move |of| Some(part(of)));
    let real = |part: fn(&RuleRow) -> f64| of.iter().map(move |of| Some(part(of)));
    Columns::default()
        .text("bundle", of.iter().map(|of| Some(&*of.bundle)))
        .text("model", of.iter().map(|of| Some(of.model)))
        .count("holds", count(|of| of.holds))
        .count("foreign_takes", count(|of| of.foreign_takes))
        .count("operations", count(|of| of.operations))
        .count("longest_hold_operations", count(|of| of.longest_hold_operations))
        .real("kept_pages_mean", real(|of| of.kept_pages_mean))
        .count("kept_pages_max", count(|of| of.kept_pages_max))
        .real("whole_mean", real(|of| of.whole_mean))
        .count("whole_end", count(|of| of.whole_end))
        .count("order_9_served", count(|of| of.order_9_served))
        .count("remote_pages", count(|of| of.remote_pages))
        .count("failed", count(|of| of.failed))
        .count("served_below_min", count(|of| of.served_below_min))
        .real("bound_ratio", real(|of| of.bound_ratio))
        .count("fewest", count(|of| of.fewest))
        .count("watermark_fallbacks", count(|of| of.watermark_fallbacks))
        .count("skipped_frees", count(|of| of.skipped_frees))
        .count("cpus", count(|of| of.cpus))
        .table()
}
