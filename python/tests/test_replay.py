"""Bundles: replays, events, and who reads their tables."""

from __future__ import annotations

import _thread
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import nearpage

BUNDLES = Path(__file__).parents[2] / "bundles"
EVENTS = 303_236


@pytest.fixture(scope="module")
def bundle() -> nearpage.Bundle:
    return nearpage.Bundle.shipped()


@pytest.fixture(scope="module")
def report(bundle: nearpage.Bundle) -> nearpage.Report:
    return bundle.replay(settings={"pcp.batch_scale_max": 0})


def test_a_replay_compares_and_asks_what_if(report: nearpage.Report) -> None:
    assert report.kernel.startswith("6.12.") and report.model == "linux-6.12"
    assert report.fidelity.percent is not None and report.fidelity.worst is not None and report.fidelity.starts == (3, 50.0)
    scores = {row["quantity"]: row["percent"] for row in report.fidelity.scores.to_dicts()}
    assert float(report.fidelity) == pytest.approx(sum(scores.values()) / len(scores))
    assert report.fidelity.worst == min(scores.items(), key=lambda of: of[1])
    rows = {(row["quantity"], row["where"]): row for row in report.fidelity.rows.to_dicts()}
    refills = rows["refills", "all"]
    assert (refills["predicted"], refills["recorded"]) == (724, 728)
    assert refills["range_least"] <= 724 <= refills["range_most"] and refills["is_scored"] and not rows["numa_hit", "all"]["is_scored"]
    assert report.totals is not None
    totals = {row["quantity"]: row for row in report.totals.to_dicts()}
    # As the README prints it.
    holds, most = totals["lock_acquisitions"], totals["most_pages_per_hold"]
    assert (holds["recorded"], holds["predicted"], holds["what_if"]) == (None, 1404, 3237)
    assert (most["predicted"], most["what_if"]) == (994, 36)
    assert report.to_dict()["what_if"]["what_if"]["lock_acquisitions"] == 3237
    assert "node 1" in report._repr_html_()


def test_a_plain_replay_has_no_what_if() -> None:
    plain = nearpage.Bundle.open(BUNDLES / "q612-n4-asym.tar.zst").replay()
    assert plain.totals is None and plain.fidelity.percent is not None
    assert all(row["where"].startswith("node ") for row in plain.zones.to_dicts())


def test_a_bundle_runs_on_another_machine(bundle: nearpage.Bundle) -> None:
    machine = nearpage.Machine.from_short_form("--numa 2G,cpus=0-1 --numa 0,cpus=2-3 --numa 2G")
    report = bundle.replay("nearpage", machine=machine, map_cpus="round-robin")
    assert report.totals is not None and report.model == "nearpage"
    quantities = [row["quantity"] for row in report.totals.to_dicts()]
    assert "pages_of_node_2" in quantities
    with pytest.raises(nearpage.ArgumentError, match="expected one of socket, comm"):
        bundle.replay(machine=machine, map_cpus="?")  # type: ignore[arg-type]


def test_all_readers_of_arrow_take_tables(report: nearpage.Report) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    table = report.zones
    arrow = table.to_arrow()
    assert isinstance(arrow, pyarrow.Table) and arrow.num_rows == len(table)
    assert arrow.to_pylist() == table.to_dicts()
    # Zero copy: what is taken twice is the same memory.
    first, second = (pyarrow.table(table).column("predicted").chunk(0).buffers()[1] for _ in range(2))
    assert first.address == second.address
    assert report.samples.to_arrow().column_names == ["sample", "quantity", "zone", "cpu", "recorded", "predicted"]


def test_pandas_takes_tables_and_events(bundle: nearpage.Bundle, report: nearpage.Report) -> None:
    pytest.importorskip("pandas")
    frame = report.zones.to_pandas()
    assert list(frame.columns) == report.zones.column_names
    events = bundle.events().to_pandas()
    assert len(events) == EVENTS
    assert set(events["event"]) >= {"alloc", "free", "marker", "zone_locked", "pcpu_drain"}
    assert events["time"].is_monotonic_increasing
    allocs = events[events["event"] == "alloc"]
    assert set(allocs["order"].dropna()) >= {0, 1, 2, 3} and allocs["flags"].str.contains("GFP_KERNEL").any()


def test_polars_takes_events(bundle: nearpage.Bundle) -> None:
    polars = pytest.importorskip("polars")
    events = polars.DataFrame(bundle.events())
    assert events.height == EVENTS
    assert events["comm"].null_count() == 0


def test_duckdb_takes_events(bundle: nearpage.Bundle) -> None:
    duckdb = pytest.importorskip("duckdb")
    events = bundle.events()
    assert events is not None
    [(rows, frames)] = duckdb.sql("select count(*), count(pfn) from events").fetchall()
    assert rows == EVENTS and 0 < frames < EVENTS


def test_events_come_in_tables(bundle: nearpage.Bundle) -> None:
    events = bundle.events()
    tables = list(events)
    assert sum(map(len, tables)) == EVENTS and len(tables) > 1
    first = tables[0].to_dicts()[0]
    assert first["cpu"] in (0, 1) and first["time"] > 0 and first["comm"]
    # Each iteration is a pass.
    assert sum(map(len, events)) == EVENTS
    # Who drops a stream ends its reading.
    dropped = iter(events)
    assert len(next(dropped)) > 0
    del dropped


def test_progress_is_told_and_may_end_the_call(bundle: nearpage.Bundle) -> None:
    told: list[tuple[int, int]] = []
    bundle.replay(progress=lambda done, whole: told.append((done, whole)))
    assert told == sorted(told) and told[-1][0] <= told[-1][1]
    with pytest.raises(LookupError):
        bundle.replay(progress=lambda done, whole: [][1], starts=50)


def test_ctrl_c_ends_a_replay(bundle: nearpage.Bundle) -> None:
    began = 0.0

    def interrupt() -> None:
        nonlocal began
        time.sleep(0.3)
        began = time.monotonic()
        _thread.interrupt_main(signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        bundle.replay(starts=200)
    # 0.2 s, and what a busy machine adds.
    assert time.monotonic() - began < 0.2 + 0.5
    assert bundle.replay().fidelity.percent is not None


def test_others_run_meanwhile(bundle: nearpage.Bundle) -> None:
    def count(until: threading.Event) -> Iterator[int]:
        while not until.wait(0.01):
            yield 1

    done = threading.Event()
    ticks: list[int] = []
    other = threading.Thread(target=lambda: ticks.extend(count(done)))
    other.start()
    bundle.replay()
    done.set()
    other.join()
    assert len(ticks) >= 3


def test_a_sweep_has_a_row_for_each_combination(bundle: nearpage.Bundle) -> None:
    table = bundle.sweep({"pcp.batch_scale_max": [0, 5], "pcp.free_high": [True, False]})
    rows = table.to_dicts()
    assert [(row["pcp.batch_scale_max"], row["pcp.free_high"]) for row in rows] == [
        ("0", "on"), ("0", "off"), ("5", "on"), ("5", "off"),
    ]  # fmt: skip
    assert rows[0]["lock_acquisitions"] == 3237 and any(row["is_best"] for row in rows)


def test_an_interrupt_ends_tables_of_events(bundle: nearpage.Bundle, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    # It loads for longer than the interrupt waits.
    pytest.importorskip("pandas")
    twin = bundle.twin(tmp_path / "twin", hours=0.02, seed=1)
    for read in (twin.events().to_arrow, twin.events().to_pandas):
        interrupted = 0.0

        def interrupt() -> None:
            nonlocal interrupted
            interrupted = time.monotonic()
            _thread.interrupt_main(signal.SIGINT)

        threading.Timer(0.05, interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            read()
        assert time.monotonic() - interrupted < 0.2 + 0.5
    assert twin.events().to_arrow().num_rows == nearpage._nearpage._read_events(twin)


def test_an_interrupt_while_a_package_loads_is_no_missing_package(bundle: nearpage.Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted:
        @staticmethod
        def find_spec(name: str, *_: object) -> None:
            if name == "pandas":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "pandas", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Interrupted, *sys.meta_path])
    with pytest.raises(KeyboardInterrupt):
        bundle.events().to_pandas()


def test_an_interrupted_sweep_keeps_what_was_finished(bundle: nearpage.Bundle) -> None:
    over = {"pcp.batch": range(1, 65), "pcp.high_min": range(1, 65)}
    ends = 0.0

    def interrupt(done: int, whole: int) -> None:
        # After some dozen of its 4096 combinations.
        nonlocal ends
        if done > whole // 200 and not ends:
            ends = time.monotonic()
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(nearpage.Interrupted) as caught:
        bundle.sweep(over, progress=interrupt)
    assert time.monotonic() - ends < 0.2 + 0.5
    finished = caught.value.finished.to_dicts()
    assert isinstance(caught.value, KeyboardInterrupt) and 0 < len(finished) < 4096
    assert all(row["lock_acquisitions"] > 0 and row["is_best"] is None for row in finished)


def test_rules_are_measured_by_the_bound_and_by_each_other(bundle: nearpage.Bundle) -> None:
    answer = bundle.bound(["nearpage"], [(4096, 512)])
    models = answer.models.to_dicts()
    assert [row["model"] for row in models] == ["linux-6.12", "nearpage"]
    assert all(row["least_holds"] <= row["holds"] for row in models)
    assert {(row["h"], row["k"]) for row in answer.points.to_dicts()} == {(4096, 512)}
    compared = nearpage.compare_rules([BUNDLES / "q612-n2-mixed.tar.zst"], ["nearpage"])
    rows = compared.rows.to_dicts()
    assert [row["model"] for row in rows] == ["linux-6.18", "nearpage"]
    assert len(compared.first_pass) == 2
    assert {row["figure"] for row in compared.means.to_dicts()} >= {"holds", "kept_pages_mean"}
    assert all(row["must"] for row in compared.musts.to_dicts())


def test_a_page_is_explained(bundle: nearpage.Bundle) -> None:
    page = next(row["pfn"] for row in next(iter(bundle.events())).to_dicts() if row["event"] == "alloc")
    lines = bundle.explain(hex(page))
    assert any("alloc" in line for line in lines)
    with pytest.raises(nearpage.ArgumentError):
        bundle.explain("yesterday")


def test_bad_bundles_and_settings_are_told(bundle: nearpage.Bundle, tmp_path: Path) -> None:
    with pytest.raises(nearpage.ReplayError) as missing:
        nearpage.Bundle.open(tmp_path / "no.tar.zst")
    assert missing.value.place is not None and missing.value.place.endswith("no.tar.zst")
    damaged = tmp_path / "größe.tar.zst"
    content = (BUNDLES / "q612-n2-mixed.tar.zst").read_bytes()
    damaged.write_bytes(content[: len(content) // 2])
    with pytest.raises(nearpage.ReplayError) as cut:
        nearpage.Bundle.open(damaged).replay()
    assert "größe.tar.zst" in str(cut.value)
    for settings in ({"pcp.batch_scale_max": 7}, {"pcp.x": 1}, {"vm.min_free_kbytes": "much"}):
        with pytest.raises(nearpage.ArgumentError) as wrong:
            bundle.replay(settings=settings)
        assert wrong.value.place == "settings" and "pcp.high_min" in (wrong.value.expected or "")
    for call in (lambda: bundle.replay(repeat=2), lambda: bundle.sweep({}, threads=0), lambda: bundle.replay("linux-2.6")):
        with pytest.raises(nearpage.ArgumentError):
            call()
    # A text is not its letters, which are numbers here.
    for values, shown in (("31", "'31'"), (b"31", "b'31'"), (31, "31"), (None, "None")):
        with pytest.raises(nearpage.ArgumentError, match=f"over: pcp.batch has {shown}, expected a list of values"):
            bundle.sweep({"pcp.batch": values})  # type: ignore[dict-item]
    with pytest.raises(nearpage.ArgumentError, match="bundles='x.tar', expected a list of paths"):
        nearpage.compare_rules("x.tar")
    with pytest.raises(nearpage.ArgumentError, match="models='nearpage', expected a list of models"):
        nearpage.compare_rules([], "nearpage")
    with pytest.raises(nearpage.ReplayError, match="is no point of the bound"):
        bundle.bound(points=[(0, 1)])
