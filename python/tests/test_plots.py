"""Plots by matplotlib."""

from __future__ import annotations

import io
import sys

import pytest

import nearpage

np = pytest.importorskip("numpy")
pytest.importorskip("matplotlib")

from nearpage import plots  # noqa: E402


def test_samples_are_drawn_recorded_and_predicted() -> None:
    report = nearpage.Bundle.shipped().replay()
    figure = plots.samples(report)
    [axes] = figure.axes
    lines = {line.get_label(): line for line in axes.lines}
    zones = {row["zone"] for row in report.samples.to_dicts() if row["quantity"] == "free"}
    assert lines.keys() == {f"{zone}, {kind}" for zone in zones for kind in ("recorded", "predicted")}
    recorded = [row["recorded"] for row in report.samples.to_dicts() if row["quantity"] == "free" and row["zone"] == min(zones)]
    assert np.asarray(lines[f"{min(zones)}, recorded"].get_ydata()).tolist() == [of for of in recorded if of is not None]
    written = io.BytesIO()
    figure.savefig(written, format="png")
    assert written.getvalue().startswith(b"\x89PNG")
    with pytest.raises(nearpage.NearpageError, match="free, count or high"):
        plots.samples(report, "speed")


def test_a_report_shows_its_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    report = nearpage.Bundle.shipped().replay()
    html = report._repr_html_()
    assert html.count("<svg") >= 2 and "free, pages" in html and "<?xml" not in html
    # Where there is no matplotlib, the machine and the tables are shown.
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    without = report._repr_html_()
    assert "free, pages" not in without and html.startswith(without)


def test_the_best_of_a_sweep_are_named() -> None:
    table = nearpage.Bundle.shipped().sweep({"pcp.batch_scale_max": [0, 3, 5]})
    [axes] = plots.sweep(table).axes
    best = [row for row in table.to_dicts() if row["is_best"]]
    assert len(axes.lines) == 3 and {text.get_text() for text in axes.texts} == {f"batch_scale_max={row['pcp.batch_scale_max']}" for row in best}
