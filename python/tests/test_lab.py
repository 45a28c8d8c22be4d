"""The lab, the doctor, and logs of kernels."""

from __future__ import annotations

from pathlib import Path

import pytest

import nearpage

ROOT = Path(__file__).parents[2]


def test_a_scenario_has_verdicts() -> None:
    told: list[tuple[int, int]] = []
    report = nearpage.lab.run("thp-then-order0", progress=lambda *of: told.append(of))
    assert report.name == "thp-then-order0" and not report.has_failed
    assert report.title and isinstance(report.counts, dict)
    assert set(report.verdicts.column_names) == {"row", "column", "reference", "model", "verdict"}
    assert len(report.holds) >= 2 and all(row["ok"] for row in report.holds.to_dicts())
    again = nearpage.lab.run(ROOT / "crates/nearpage-lab/scenarios/thp-then-order0.toml", threads=1)
    assert again.to_dict() == report.to_dict()
    assert all(len(table.column_names) > 0 for table in report.tables)
    assert report._repr_html_().startswith("<p>")


def test_a_scenario_may_be_a_dict() -> None:
    tomllib = pytest.importorskip("tomllib")
    text = (ROOT / "crates/nearpage-lab/scenarios/thp-then-order0.toml").read_text()
    given = tomllib.loads(text)
    assert nearpage.lab.run(given).to_dict() == nearpage.lab.run("thp-then-order0").to_dict()
    given["workloads"] = {}
    with pytest.raises(nearpage.LabError) as caught:
        nearpage.lab.run(given)
    assert "workloads" in str(caught.value) and caught.value.place is not None
    with pytest.raises(nearpage.LabError):
        nearpage.lab.run({"name": None})
    given["name"] = object()
    with pytest.raises(nearpage.LabError, match="dict: .*not JSON serializable, expected keys and values of a scenario"):
        nearpage.lab.run(given)
    given["name"] = given
    with pytest.raises(nearpage.LabError, match="dict: "):
        nearpage.lab.run(given)


def test_unknown_scenarios_and_settings_are_told() -> None:
    assert "memoryless-slab" in nearpage.lab.names()
    with pytest.raises(nearpage.LabError) as caught:
        nearpage.lab.run("no-such-scenario")
    assert "memoryless-slab" in (caught.value.expected or "")
    for over in ({}, {"x": [1]}, {"model": ["linux-2.6"]}, {"model": "nearpage"}, {"model": None}):
        with pytest.raises(nearpage.ArgumentError):
            nearpage.lab.sweep("thp-then-order0", over)  # type: ignore[arg-type]


def test_the_doctor_finds_what_is_slow() -> None:
    found = nearpage.doctor(ROOT / "docs/src/examples/slow-box")
    problems = [row for row in found.findings.to_dicts() if row["level"] == "problem"]
    assert len(problems) == found.problems > 0
    assert any("sysctl vm.zone_reclaim_mode=0" in (row["advice"] or "") for row in problems)
    recorded = nearpage.doctor(ROOT / "bundles/q612-n2-mixed.tar.zst", capture="before")
    assert recorded.to_dict()["capture"] == "before"
    assert len(nearpage.doctor().findings) > 3
    with pytest.raises(nearpage.MachineError):
        nearpage.doctor("/nowhere")


def test_logs_of_kernels_are_explained(tmp_path: Path) -> None:
    logs = sorted((ROOT / "crates/nearpage-explain/tests/reports").glob("**/*.log"))
    assert logs, "the tree has logs of kernels"
    explained = [report for log in logs for report in nearpage.explain_log(log)]
    assert any(report["verdict"]["rule"] == "watermark" for report in explained)
    assert nearpage.explain_log(logs[0].read_bytes()) == nearpage.explain_log(logs[0])
    with pytest.raises(nearpage.LogError) as caught:
        nearpage.explain_log(tmp_path / "none.log")
    assert caught.value.place is not None and caught.value.place.endswith("none.log")
