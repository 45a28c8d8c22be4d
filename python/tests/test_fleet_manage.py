"""Stores as a whole: SQL, calibration, what goes, what is merged, what is exported."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from fleet_help import content_of

import nearpage
import nearpage.fleet as fleet
from nearpage.fleet import cli, manage
from nearpage.fleet.sql import fidelity_of

STUDY = fleet.Study(models=["auto"])


def test_sql_sees_entries_results_events_and_fidelity(own_store: fleet.Store, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("duckdb")
    fleet.run(STUDY, store=own_store)
    [row] = own_store.sql("select count(*) as n, sum(e.events)::bigint as events from entries e join results r on r.entry = e.hash").to_pylist()
    assert row == {"n": 2, "events": sum(own_store.entries().column("events").to_pylist())}
    # Nanoseconds stay, and whole numbers stay whole.
    hash = own_store.hashes()[0]
    own = own_store.events(hash).to_arrow(["time"])
    told = own_store.sql(f"select time_ns from events where entry = '{hash}' order by time_ns limit 5").to_pylist()
    assert [of["time_ns"] for of in told] == sorted(own.column("time").cast("int64").to_pylist())[:5]
    [first] = own_store.sql(f"select pfn from events where entry = '{hash}' and pfn is not null limit 1").to_pylist()
    assert isinstance(first["pfn"], int)
    [refills] = own_store.sql(f"select predicted, recorded from fidelity where entry = '{hash}' and quantity = 'refills'").to_pylist()
    assert refills["recorded"] == json.loads(own_store.entry(hash)["quantities"])["refills"][1]
    with pytest.raises(nearpage.ArgumentError, match="expected SQL of DuckDB over entries"):
        own_store.sql("select nothing from nowhere")
    assert cli.main(["sql", "select load from entries order by load", "--store", own_store.url]) == 0
    assert capsys.readouterr().out.split() == ["load", "longer", "short"]


def test_a_store_of_an_earlier_version_is_read(own_store: fleet.Store) -> None:
    """It has events beside bundles, and entries that say less."""
    root = Path(own_store.url)
    hash = own_store.hashes()[0]
    before = own_store.events(hash).to_arrow()
    (root / "events" / f"entry={hash}" / "events.parquet").rename(root / "entries" / hash / "events.parquet")
    line = json.loads((root / "catalogue" / f"{hash}.json").read_text())
    for name in ("quantities", "name", "twin_of", "begin", "end", "command", "sysctls", "host"):
        line.pop(name, None)
    (root / "catalogue" / f"{hash}.json").write_text(json.dumps(line))
    assert own_store.events(hash).to_arrow().equals(before) and own_store.damaged().num_rows == 0
    table = fleet.run(STUDY, store=own_store).to_pylist()
    assert {row["entry"]: row["error_percent_holds"] is None for row in table}[hash]
    assert fidelity_of(own_store.entries()).num_rows > 0


def test_what_is_deleted_is_gone_with_all_of_it(own_store: fleet.Store, capsys: pytest.CaptureFixture[str]) -> None:
    fleet.run(STUDY, store=own_store)
    gone, stays = own_store.hashes()
    assert cli.main(["rm", gone[:12], "--store", own_store.url]) == 0
    assert "2 objects of entries, 1 results" in capsys.readouterr().out
    assert own_store.hashes() == [stays] and own_store.results().column("entry").to_pylist() == [stays]
    assert not any(gone in name for name in own_store.files.names(""))
    # What a writer left that was killed, and results that cannot be read.
    own_store.files.create(f"events/entry={gone}/events.parquet", b"x")
    own_store.files.create(f"results/ab/{'ab' * 32}.json", b"damaged")
    own_store.files.create(f"claims/ab/{'ab' * 32}.0", json.dumps({"boot": "elsewhere", "pid": 1}).encode())
    found = manage.gc(own_store)
    assert found == manage.Gone((f"events/entry={gone}/events.parquet",), (f"results/ab/{'ab' * 32}.json",)), "claims of others stay"
    assert manage.gc(own_store) == manage.Gone() and own_store.results().num_rows == 1


def test_merging_twice_is_merging_once(own_store: fleet.Store, tmp_path: Path) -> None:
    fleet.run(STUDY, store=own_store)
    whole = {folder: content_of(own_store, folder) for folder in ("catalogue", "entries", "events", "results")}
    half = tmp_path / "half"
    shutil.copytree(own_store.url, half)
    other = fleet.Store.open(half)
    manage.rm(other, other.hashes()[:1])
    manage.rm(own_store, own_store.hashes()[1:])
    assert manage.merge(own_store, other) == (1, 1) and manage.merge(own_store, other) == (0, 0)
    assert {folder: content_of(own_store, folder) for folder in whole} == whole


def test_an_export_is_read_by_anything(own_store: fleet.Store, tmp_path: Path) -> None:
    fleet.run(STUDY, store=own_store)
    made = manage.export(own_store, tmp_path / "out", events=True)
    assert len(made) == 6 and json.loads((tmp_path / "out" / "schema.json").read_text())["format"] == "nearpage-export 1"
    assert pq.read_table(tmp_path / "out" / "results.parquet").equals(own_store.results())
    events = pq.read_table(tmp_path / "out" / "events")
    assert events.num_rows == sum(own_store.entries().column("events").to_pylist()) and "entry" in events.column_names
    with pytest.raises(nearpage.ArgumentError, match="is not empty, expected a new folder"):
        manage.export(own_store, tmp_path / "out")


def test_a_store_is_calibrated(own_store: fleet.Store, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("scipy")
    from nearpage.fleet.calibration import calibrate, to_html

    of = {one.quantity: one for one in calibrate(fidelity_of(own_store.entries()), by=["kernel"])}
    assert of["refills"].recordings == 2 and of["refills"].group == {"kernel": "6.12"} and of["refills"].spread is not None
    assert cli.main(["calibrate", "--store", own_store.url, "--by", "load", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["calibration"]
    assert {"quantity", "load", "bias", "spread"} <= set(told[0])
    rows = [{"quantity": "refills", "kernel": "6.1", "load": f"{n}", "host": None, "recorded": 50 * n, "predicted": 55 * n} for n in range(1, 30)]
    [known] = calibrate(rows)
    assert 1 < known.low < known.bias < known.high < 1.12 and len(known.curve) > 1 and "<svg" in to_html([known])
    with pytest.raises(nearpage.ArgumentError, match="some of kernel, load, host"):
        calibrate(rows, by=["colour"])
