"""Events with all their fields, from text and from Parquet, and from files of earlier versions."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numpy")
pytest.importorskip("pyarrow")

import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
from fleet_help import MIXED, shortened, unpacked, write_tar  # noqa: E402

import nearpage  # noqa: E402
import nearpage.fleet as fleet  # noqa: E402
from nearpage.fleet import catalogue  # noqa: E402
from nearpage.fleet.answers import compare  # noqa: E402
from nearpage.fleet.calibration import calibrate  # noqa: E402
from nearpage.fleet.objective import Objective  # noqa: E402
from nearpage.fleet.parquet import COLUMNS  # noqa: E402
from nearpage.fleet.space import Space  # noqa: E402
from nearpage.fleet.sql import fidelity_of  # noqa: E402

HEAD = b"            load-501     [001] d..3.    15.514484: "
LINES = b"""\
mm_page_alloc_zone_locked: page=ffd40000002c0000 pfn=0xb000 order=0 migratetype=1 percpu_refill=1
mm_page_alloc_extfrag: page=ffd40000002c0000 pfn=0xb000 alloc_order=3 fallback_order=10 pageblock_order=9 alloc_migratetype=0 fallback_migratetype=1 fragmenting=0 change_ownership=1
kmem_cache_alloc: call_site=getname_flags+0x4f/0x200 ptr=00000000deadbee0 name=names_cache bytes_req=4096 bytes_alloc=4352 gfp_flags=GFP_KERNEL node=-1 accounted=false
kmalloc: call_site=load_elf+0x8/0x100 ptr=0xffff888100001000 bytes_req=28 bytes_alloc=32 gfp_flags=GFP_KERNEL|__GFP_ZERO node=1 accounted=true
kfree: call_site=load_elf+0x80/0x100 ptr=0xffff888100001000
contention_begin: 00000000c0ffee00 (flags=SPIN|WRITE)
contention_end: 00000000c0ffee00 (ret=0)
mm_page_alloc: page=0000000000000000 pfn=0x0 order=9 migratetype=1 gfp_flags=GFP_TRANSHUGE
"""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    files = shortened(unpacked(MIXED), 2000)
    lines = files["trace.txt"].splitlines(keepends=True)
    at = next(at for at, line in enumerate(lines) if b"mm_page_alloc: " in line)
    lines[at:at] = [HEAD + line for line in LINES.splitlines(keepends=True)]
    return write_tar({**files, "trace.txt": b"".join(lines)}, tmp_path_factory.mktemp("events") / "fields.tar.zst")


def told(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the lines above are, without what is null."""
    return [{name: value for name, value in row.items() if value is not None and name not in ("time", "cpu", "pid", "comm")} for row in rows if row["comm"] == "load"][:8]


BLOCK = {"pfn": 0xB000, "node": 0, "zone": "DMA32"}
EXPECTED: list[dict[str, Any]] = [
    {"event": "zone_locked", **BLOCK, "order": 0, "type": "movable", "percpu_refill": True},
    {"event": "extfrag", **BLOCK, "order": 3, "type": "unmovable", "fallback_order": 10, "pageblock_order": 9, "fallback_type": "movable", "fragmenting": False, "change_ownership": True},
    {"event": "object_alloc", "text": "names_cache", "flags": "GFP_KERNEL", "call_site": "getname_flags+0x4f/0x200", "pointer": 0xDEADBEE0, "bytes_requested": 4096, "bytes": 4352, "accounted": False},
    {"event": "object_alloc", "text": "", "flags": "GFP_KERNEL|__GFP_ZERO", "call_site": "load_elf+0x8/0x100", "pointer": 0xFFFF888100001000, "bytes_requested": 28, "bytes": 32, "wanted_node": 1, "accounted": True},
    {"event": "object_free", "call_site": "load_elf+0x80/0x100", "pointer": 0xFFFF888100001000},
    {"event": "contention_begin", "flags": "SPIN|WRITE", "lock": 0xC0FFEE00},
    {"event": "contention_end", "lock": 0xC0FFEE00, "result": 0},
    {"event": "alloc", "order": 9, "type": "movable", "flags": "GFP_TRANSHUGE"},
]  # fmt: skip


def test_events_have_all_fields_of_their_kind(bundle: Path, tmp_path: Path) -> None:
    events = nearpage.Bundle.open(bundle).events()
    table = events.to_arrow()
    found = told(table.to_pylist())
    for own, expected in zip(found, EXPECTED):
        assert own == expected
    # Nodes and zones are those of the recorded machine.
    frames = table.filter(pa.compute.is_valid(table["pfn"])).select(["pfn", "node", "zone"]).to_pylist()
    assert len(frames) > 100 and all(of["node"] in (0, 1) and of["zone"] in ("DMA", "DMA32", "Normal") for of in frames)
    assert {of["node"] for of in frames} == {0, 1}
    assert table.schema.field("time").metadata == {b"unit": b"ns", b"meaning": b"by the clock of the trace"} and table.schema.field("bytes").metadata[b"unit"] == b"bytes"
    # The same from a store.
    store = fleet.Store.create(tmp_path / "store")
    [taken] = fleet.ingest(store, [bundle])
    assert taken.hash is not None, taken.reason
    kept = store.events(taken.hash)
    assert kept.to_arrow().equals(table.unify_dictionaries()) or kept.to_arrow().to_pylist() == table.to_pylist()
    assert kept.schema.names == list(COLUMNS) == table.schema.names and kept.schema.field("pfn").metadata[b"unit"] == b"frame"
    assert list(kept.to_pandas(["pointer", "node"]).dtypes.astype(str)) == ["UInt64", "UInt32"]
    assert store.entries().schema.field("begin").type == pa.timestamp("s", "UTC")


def test_files_of_an_earlier_version_lack_columns_and_are_read(bundle: Path, tmp_path: Path) -> None:
    store = fleet.Store.create(tmp_path / "store")
    fleet.ingest(store, [bundle, MIXED])
    [older] = [row["hash"] for row in store.entries().to_pylist() if row["load"] == "fields"]
    path = Path(store.url) / catalogue.events_names(older)[0]
    first = list(COLUMNS)[:11]
    before = store.events(older).to_arrow(first)
    shutil.copy(path, tmp_path / "newer.parquet")
    table = pq.read_table(tmp_path / "newer.parquet").select(first)
    pq.write_table(table.replace_schema_metadata({"nearpage": "events 1"}), path, use_dictionary=[name for name in first if pa.types.is_dictionary(table.schema.field(name).type)])
    events = store.events(older)
    assert events.to_arrow(first).to_pylist() == before.to_pylist()
    whole = events.to_arrow()
    assert whole.column_names == list(COLUMNS) and whole["node"].null_count == len(events) == len(before)
    assert events.to_arrow(["zone"]).num_rows == sum(batch.num_rows for batch in events.batches(["zone"])) == len(events)
    assert pa.table(events).num_rows == len(events)
    pytest.importorskip("duckdb")
    rows = store.sql("select count(*) as n, count(node) as nodes, count(time_ns) as times from events group by entry order by n").to_pylist()
    assert len(rows) == 2 and rows[0]["nodes"] == 0 and rows[1]["nodes"] > 0 and all(row["n"] == row["times"] for row in rows)
    assert store.sql("select distinct zone from events where event = 'free' and zone is not null").num_rows > 0


def test_traces_of_trace_cmd_and_perf_are_taken_in(tmp_path: Path) -> None:
    binary = Path(__file__).parents[2] / "crates" / "nearpage-trace" / "tests" / "binary"
    store = fleet.Store.create(tmp_path / "store")
    rest = {name: content for name, content in unpacked(MIXED).items() if name not in ("trace.txt", "samples.txt")}
    with pa.input_stream(str(binary / "perf.data.zst"), compression="zstd") as packed:
        perf = packed.read()
    bundles = {name: write_tar({**rest, name: content}, tmp_path / f"{name}.tar.zst") for name, content in (("trace.dat", (binary / "trace-v7.dat").read_bytes()), ("perf.data", perf))}
    for name, least in (("trace.dat", 900), ("perf.data", 280)):
        events = nearpage.Bundle.open(bundles[name]).events().to_arrow()
        assert events.num_rows >= least and "alloc" in events["event"].unique().to_pylist()
        [refused] = fleet.ingest(store, [bundles[name]], salt=bytes(32))
        assert refused.hash is None and "a binary trace cannot be redacted" in str(refused.reason)
    # The frames of the second are of no zone of this machine.
    taken, foreign = fleet.ingest(store, bundles.values())
    assert taken.hash is not None and len(store.events(taken.hash)) >= 900, taken.reason
    assert foreign.hash is None and "the trace is of another machine or kernel" in str(foreign.reason)


def test_what_holds_data_of_a_store_pickles(bundle: Path, tmp_path: Path) -> None:
    store = fleet.Store.create(tmp_path / "store")
    fleet.ingest(store, [bundle])
    [hash] = store.hashes()
    study = fleet.Study(models=["auto", "nearpage"])
    table = fleet.run(study, store=store)
    compared = compare(table, figures=["holds"], baseline="auto")
    calibrated = calibrate(fidelity_of(store.entries()))
    zones = nearpage.Bundle.open(bundle).replay().zones
    for held in (store, study, compared, calibrated, store.tasks(study), Space.parse(["pcp.batch=1..9"]), Objective.of("holds", ["kept_pages_mean<=today"])):
        again = pickle.loads(pickle.dumps(held))
        assert again == held or again.url == store.url
    assert pickle.loads(pickle.dumps(zones)).to_dicts() == zones.to_dicts()
    assert pickle.loads(pickle.dumps(store.events(hash))).to_arrow().equals(store.events(hash).to_arrow())


def test_tables_of_all_columns_are_dicts_and_pickle(bundle: Path) -> None:
    [table] = list(nearpage.Bundle.open(bundle).events())
    rows = table.to_dicts()
    assert list(rows[0]) == list(COLUMNS) and pickle.loads(pickle.dumps(table)).to_dicts() == rows
