"""The store: ingest, the catalogue, events in Parquet."""

from __future__ import annotations

import concurrent.futures
import gzip
import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fleet_help import MIXED, content_of, shortened, unpacked, write_folder, write_tar

import nearpage
import nearpage.fleet as fleet
from nearpage.fleet import catalogue, cli
from nearpage.fleet.catalogue import events_names
from nearpage.fleet.files import LocalFiles
from nearpage.fleet.parquet import write_events


def test_an_entry_says_whose_it_is(small_bundles: list[Path], tmp_path: Path) -> None:
    store = fleet.Store.create(tmp_path / "store")
    fleet.ingest(store, small_bundles[:1], host="h1", service="web", tags={"rack": "7"})
    [entry] = store.entries().to_pylist()
    assert (entry["host"], entry["service"], entry["tags"], entry["name"], entry["twin_of"]) == ("h1", "web", '{"rack": "7"}', "q612-n2-mixed", None)
    assert (str(entry["begin"]), str(entry["end"])) == ("2026-11-21 19:59:05+00:00", "2026-11-21 19:59:16+00:00")
    assert entry["command"] == "sh /work.sh" and json.loads(entry["sysctls"])["vm.min_free_kbytes"].isdigit()
    assert json.loads(entry["quantities"])["refills"][1] > 0
    # What a recording says as something else than a text or a time is not known.
    folder = write_folder(shortened(unpacked(MIXED), 6000), tmp_path / "odd")
    meta = json.loads((folder / "meta.json").read_text()) | {"host": ["x"], "start_epoch": -1, "end_epoch": 10**30, "command": 7, "twin_of": {}}
    (folder / "meta.json").write_text(json.dumps(meta))
    (folder / "before" / "sysctl").write_bytes(b"vm.a = 1 \t 2\nkernel.hostname = x\nvm.b = \xff\n")
    [one] = fleet.ingest(store, [folder])
    assert one.hash is not None, one.reason
    odd = store.entry(one.hash)
    assert [odd[key] for key in ("host", "begin", "end", "command", "twin_of")] == [None] * 5
    assert json.loads(odd["sysctls"]) == {"vm.a": "1 2", "vm.b": "\ufffd"}


def test_ingest_in_parallel_takes_in_the_same(small_bundles: list[Path], tmp_path: Path) -> None:
    (tmp_path / "damaged.tar.zst").write_bytes(b"no bundle")
    paths = [*small_bundles, tmp_path / "damaged.tar.zst"]
    stores = [fleet.Store.create(tmp_path / name) for name in ("one", "threads", "processes")]
    told = [fleet.ingest(stores[0], paths)]
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        told.append(fleet.ingest(stores[1], paths, executor=pool))
    told.append(fleet.ingest(stores[2], paths, executor=fleet.Processes(2)))
    assert told[0] == told[1] == told[2] and [one.is_new for one in told[0]] == [True, True, False]
    for folder in ("catalogue", "entries", "damaged"):
        assert content_of(stores[0], folder) == content_of(stores[1], folder) == content_of(stores[2], folder) != {}


def test_what_is_taken_in_is_there(small_store: fleet.Store, small_bundles: list[Path]) -> None:
    entries = small_store.entries()
    assert entries.column("load").to_pylist() == ["longer", "short"]
    assert entries.column_names == list(catalogue.COLUMNS)
    first = entries.to_pylist()[0]
    assert first["machine"] == "x86_64, 2 nodes, 4 CPUs, 1280 MiB" and first["kernel"].startswith("6.12.")
    bundle = small_store.bundle(first["hash"])
    text = bundle.events().to_arrow()
    assert first["events"] == text.num_rows > 10_000
    events = small_store.events(first["hash"][:8])
    # Every column of every event, from Parquet as from the text.
    assert events.to_arrow().to_pylist() == text.to_pylist()
    assert pa.table(events).num_rows == len(events) == first["events"]
    assert first["fidelity"] == bundle.replay().fidelity.percent
    assert small_store.damaged().num_rows == 0
    # Nothing is left of what was written beside.
    assert list((Path(small_store.url) / ".tmp").iterdir()) == []


def test_a_bundle_is_the_same_however_it_is_packed(own_store: fleet.Store, small_bundles: list[Path], tmp_path: Path) -> None:
    folder = write_folder(unpacked(small_bundles[0]), tmp_path / "as-folder")
    packed = pa.compress((folder / "trace.txt").read_bytes(), "zstd", asbytes=True)
    (folder / "trace.txt.zst").write_bytes(packed)
    (folder / "trace.txt").unlink()
    [again] = fleet.ingest(own_store, [folder])
    assert not again.is_new and again.hash in own_store.hashes()
    other = fleet.Store.create(tmp_path / "other")
    [new] = fleet.ingest(other, [folder], load="a load", machine="a machine")
    assert new.is_new and new.hash == again.hash
    entry = other.entry(str(new.hash))
    assert (entry["load"], entry["machine"], entry["trace_packed_bytes"]) == ("a load", "a machine", len(packed))
    assert other.bundle(entry["hash"]).events().to_arrow().num_rows == entry["events"]


def test_parquet_is_smaller_than_the_packed_text(tmp_path: Path) -> None:
    store = fleet.Store.create(tmp_path / "store")
    [one] = fleet.ingest(store, [MIXED])
    entry = store.entry(str(one.hash))
    text = pa.compress(unpacked(MIXED)["trace.txt"], "zstd", asbytes=True)
    assert entry["events_bytes"] * 2 < len(text)
    # It is smaller than the packed bundle, too.
    assert entry["events_bytes"] * 2 < entry["bundle_bytes"]


def test_columns_that_every_event_has_are_not_nullable(small_store: fleet.Store, tmp_path: Path) -> None:
    hash = small_store.hashes()[0]
    events = small_store.events(hash).to_arrow()
    of_trace = pa.table(small_store.bundle(hash).events()).schema
    assert [field.nullable for field in events.schema] == [field.nullable for field in of_trace]
    # Files of earlier stores say that all columns may have nulls.
    earlier = pa.schema([pa.field(field.name, field.type) for field in events.schema])
    pq.write_table(events.cast(earlier), tmp_path / "earlier.parquet")
    assert fleet.EventFile(tmp_path / "earlier.parquet", "earlier").to_arrow().equals(events.cast(earlier))


def test_paths_are_a_list(tmp_path: Path) -> None:
    store = fleet.Store.create(tmp_path / "store")
    wrong: list[Any] = ["bundles", Path("bundles")]
    for paths in wrong:
        with pytest.raises(nearpage.ArgumentError, match=r"paths=.*, expected a list of bundles"):
            fleet.ingest(store, paths)


def test_damaged_bundles_are_listed_and_stop_nothing(small_bundles: list[Path], tmp_path: Path) -> None:
    files = unpacked(small_bundles[0])
    many = tmp_path / "many"
    many.mkdir()
    whole = small_bundles[0].read_bytes()
    (many / "a-cut.tar.zst").write_bytes(whole[: len(whole) // 2])
    (many / "b-noise.tar.zst").write_bytes(random.Random(1).randbytes(5000))
    write_tar({name: content for name, content in files.items() if name != "before/zoneinfo"}, many / "c-lacks.tar.zst")
    write_tar({**files, "trace.txt": b"no trace\n"}, many / "d-text.tar.zst")
    write_folder({"meta.json": b"{"}, many / "e-meta")
    (many / "f-good.tar.zst").write_bytes(whole)
    write_folder({"meta.json": b"[]"}, many / "g-ünïcode \N{SNOWMAN}")
    (many / "no bundle.txt").write_text("is not looked at")
    store = fleet.Store.create(tmp_path / "store")
    done = fleet.ingest(store, [many])
    assert [one.reason is None for one in done] == [False] * 5 + [True, False]
    damaged = store.damaged().to_pylist()
    assert [Path(row["source"]).name for row in damaged] == sorted(
        ["a-cut.tar.zst", "b-noise.tar.zst", "c-lacks.tar.zst", "d-text.tar.zst", "e-meta", "g-ünïcode \N{SNOWMAN}"]
    )
    assert all(row["reason"] for row in damaged)
    assert len(store.hashes()) == 1
    # One that is whole now is listed no more.
    (many / "a-cut.tar.zst").write_bytes(whole)
    fleet.ingest(store, [many / "a-cut.tar.zst"])
    assert "a-cut.tar.zst" not in {Path(row["source"]).name for row in store.damaged().to_pylist()}


def test_ingest_may_be_cut_off_at_any_object(small_bundles: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Cut(BaseException):
        pass

    whole = fleet.Store.create(tmp_path / "whole")
    fleet.ingest(whole, small_bundles)
    expected = {folder: content_of(whole, folder) for folder in ("catalogue", "entries")}
    originals = {name: getattr(LocalFiles, name) for name in ("publish", "create", "replace")}
    for after in range(7):
        store = fleet.Store.create(tmp_path / f"cut{after}")
        left = after
        for name in originals:

            def cut(self: LocalFiles, *arguments: object, of: str = name) -> object:
                nonlocal left
                if left == 0:
                    raise Cut
                left -= 1
                return originals[of](self, *arguments)

            monkeypatch.setattr(LocalFiles, name, cut)
        try:
            fleet.ingest(store, small_bundles)
        except Cut:
            pass
        monkeypatch.undo()
        # What is listed is whole.
        for entry in store.entries().to_pylist():
            assert store.events(entry["hash"]).to_arrow().num_rows == entry["events"]
            assert store.bundle(entry["hash"]).kernel == entry["kernel"]
        assert len(store.hashes()) == after // 3
        fleet.ingest(store, small_bundles)
        assert {folder: content_of(store, folder) for folder in expected} == expected


def test_ingest_may_be_killed(small_bundles: list[Path], tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    store = fleet.Store.create(tmp_path / "store")
    command = [sys.executable, "-m", "nearpage.fleet.cli", "ingest", "--store", store.url, *map(str, small_bundles)]
    for _ in range(4):
        running = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=tmp_path)
        time.sleep(draw.uniform(0.3, 1.5))
        running.send_signal(signal.SIGKILL)
        running.wait()
        for entry in store.entries().to_pylist():
            assert store.events(entry["hash"]).to_arrow().num_rows == entry["events"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=tmp_path)
    assert len(store.hashes()) == 2
    assert list((Path(store.url) / ".tmp").iterdir()) == [], "what the killed ones left is swept"


def test_a_full_disk_is_no_fault_of_a_bundle(small_bundles: list[Path], tmp_path: Path) -> None:
    store = fleet.Store.create(tmp_path / "store")
    program = (
        "import resource, sys; from nearpage.fleet.cli import main;"
        "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000));"
        "sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-B", "-c", program, "ingest", "--store", store.url, str(small_bundles[0])]
    full = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert full.returncode == 1 and "too large" in full.stderr, full
    assert store.hashes() == [] and store.damaged().num_rows == 0
    fleet.ingest(store, small_bundles)
    assert len(store.hashes()) == 2


def test_what_is_no_store_is_refused(own_store: fleet.Store, tmp_path: Path) -> None:
    with pytest.raises(nearpage.StoreError, match="is no store, expected a folder with store.json") as caught:
        fleet.Store.open(tmp_path / "nothing")
    assert caught.value.place == str(tmp_path / "nothing")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a file").write_text("of somebody")
    with pytest.raises(nearpage.StoreError, match="not empty"):
        fleet.Store.create(tmp_path / "full")
    mark = Path(own_store.url) / "store.json"
    for content, problem in (("{", "damaged"), ("[]", "damaged"), ('{"format": "nearpage-store 2"}', "has format 'nearpage-store 2'")):
        mark.write_text(content)
        with pytest.raises(nearpage.StoreError, match=problem):
            fleet.Store.open(own_store.url)
        with pytest.raises(nearpage.StoreError, match=problem):
            fleet.Store.create(own_store.url)
    with pytest.raises(nearpage.StoreError, match="expected"):
        fleet.Store.open("no-such-protocol://x/y")
    with pytest.raises(nearpage.ArgumentError, match="has no bundle"):
        fleet.ingest(fleet.Store.create(tmp_path / "new"), [tmp_path / "full"])


def test_what_is_damaged_in_a_store_is_taken_in_again(own_store: fleet.Store, small_bundles: list[Path]) -> None:
    hashes = {of["load"]: of["hash"] for of in own_store.entries().to_pylist()}
    root = Path(own_store.url)
    line = root / "catalogue" / f"{hashes['short']}.json"
    objects = root / "entries" / hashes["short"]
    whole = line.read_bytes()
    for damage in (
        lambda: line.write_bytes(b""),
        lambda: line.write_bytes(whole[:100]),
        lambda: (root / events_names(hashes["short"])[0]).unlink(),
        lambda: (objects / "bundle.tar.zst").unlink(),
    ):
        damage()
        [one] = fleet.ingest(own_store, small_bundles[:1])
        assert one.reason is None and line.read_bytes() == whole
        assert len(own_store.events(hashes["short"])) == own_store.entry(hashes["short"])["events"]
        assert own_store.bundle(hashes["short"]).kernel
        [one] = fleet.ingest(own_store, small_bundles[:1])
        assert not one.is_new
    later = json.dumps({**json.loads(whole), "format": "nearpage-entry 9"}).encode()
    line.write_bytes(later)
    fleet.ingest(own_store, small_bundles[:1])
    assert line.read_bytes() == later, "what a later nearpage wrote is left alone"


def test_names_that_are_no_utf8_stop_nothing(small_bundles: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    many = tmp_path / "many"
    many.mkdir()
    good = os.fsencode(many) + b"/caf\xe9.tar.zst"
    Path(os.fsdecode(good)).write_bytes(small_bundles[0].read_bytes())
    Path(os.fsdecode(os.fsencode(many) + b"/damaged\xff.tar.zst")).write_bytes(b"no tar")
    store = fleet.Store.create(tmp_path / "store")
    done = fleet.ingest(store, [many], machine="caf\udce9")
    assert [one.reason is None for one in done] == [True, False]
    [entry] = store.entries().to_pylist()
    assert (entry["load"], entry["machine"]) == ("caf\\xe9", "caf\\xe9")
    [row] = store.damaged().to_pylist()
    assert row["source"].endswith("damaged\\xff.tar.zst")
    assert cli.main(["ls", "--json", "--store", store.url]) == 0
    json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("rows", [1000, 1 << 20])
def test_flipped_bits_of_events_are_an_error(
    small_store: fleet.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    """Not other events. Parquet's checksums leave out headers of pages: short dictionaries and shifted nulls were believed."""
    true = small_store.events(small_store.hashes()[0]).to_arrow()
    path = tmp_path / "events.parquet"
    monkeypatch.setattr("nearpage.fleet.parquet.ROWS", rows)
    write_events(path, [true.slice(at, 1000) for at in range(0, len(true), 1000)])
    whole = path.read_bytes()
    true = fleet.EventFile(path, "whole").to_arrow()
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    metadata = pq.read_metadata(path)
    assert metadata.num_row_groups == -(-len(true) // rows) and metadata.metadata[b"nearpage.sums"].startswith(f"{footer} ".encode())
    group = metadata.row_group(metadata.num_row_groups - 1)
    columns = [group.column(at) for at in range(group.num_columns)]
    pages = [column.dictionary_page_offset if column.has_dictionary_page else column.data_page_offset for column in columns]
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    damaged = [
        *(draw.randrange(4, footer) for _ in range(60)),
        *(draw.randrange(footer, len(whole)) for _ in range(60)),
        *(at + byte for at in pages for byte in range(20)),
    ]
    others = []
    for at in damaged:
        for bit in range(8):
            content = bytearray(whole)
            content[at] ^= 1 << bit
            for read in (_whole, _in_batches):
                try:
                    if not read(bytes(content)).equals(true):
                        others.append((at, bit, read.__name__))
                except nearpage.StoreError:
                    pass
    assert others == []


def _whole(content: bytes) -> pa.Table:
    return fleet.EventFile(io.BytesIO(content), "damaged").to_arrow()


def _in_batches(content: bytes) -> pa.Table:
    return pa.Table.from_batches(fleet.EventFile(io.BytesIO(content), "damaged").batches())


def test_columns_that_there_are_not_are_refused(small_store: fleet.Store) -> None:
    events = small_store.events(small_store.hashes()[0])
    assert events.to_arrow([]).num_columns == sum(batch.num_columns for batch in events.batches([])) == 0
    for read in (events.to_arrow, events.to_pandas, lambda columns: next(events.batches(columns))):
        with pytest.raises(nearpage.ArgumentError, match="there is no column 'evnt', expected some of time, cpu") as caught:
            read(["time", "evnt"])
        assert caught.value.place == "columns"
    with pytest.raises(nearpage.ArgumentError, match="rows=0, expected 1 or more"):
        next(events.batches(rows=0))


def test_the_command_ends_with_its_reader(small_store: fleet.Store) -> None:
    program = "import sys; from nearpage.fleet.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", program, "show", small_store.hashes()[0], "--events", "10000", "--store", small_store.url]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=small_store.url)
    assert running.stdout is not None and running.stderr is not None
    running.stdout.readline()
    running.stdout.close()
    assert running.stderr.read() == b""
    assert running.wait() == 141


def test_names_are_escaped_where_output_has_no_letters_for_them(small_bundles: list[Path], tmp_path: Path) -> None:
    store = fleet.Store.create(tmp_path / "store")
    fleet.ingest(store, small_bundles[:1], load="ラ")
    program = "import sys; from nearpage.fleet.cli import main; sys.exit(main())"
    for more, shown in ((), b"\\u30e9"), (("--json",), b'"\\u30e9"'):
        command = [sys.executable, "-c", program, "ls", *more, "--store", store.url]
        ended = subprocess.run(command, capture_output=True, cwd=store.url, env={**os.environ, "PYTHONIOENCODING": "ascii"})
        assert ended.returncode == 0 and shown in ended.stdout, ended


def test_damaged_and_later_entries_are_listed_with_the_reason(own_store: fleet.Store) -> None:
    [first, second] = own_store.hashes()
    path = Path(own_store.url) / "catalogue" / f"{first}.json"
    entry = json.loads(path.read_text())
    for content, problem in (
        ("", "damaged"),
        (json.dumps({**entry, "format": "nearpage-entry 9"}), "a later nearpage wrote it"),
        (json.dumps({**entry, "cpus": "four"}), "cpus is 'four', expected int64"),
        (json.dumps({**entry, "hash": second}), "expected that of its name"),
        (json.dumps({name: value for name, value in entry.items() if name != "seconds"}), "seconds is not there, expected double"),
        (json.dumps({**entry, "bundle": None}), "bundle is not there, expected string"),
        (json.dumps({**entry, "events": 1 << 80}), "events is 1208925819614629174706176, expected int64"),
        (json.dumps({**entry, "load": "\ud800"}), "expected string"),
    ):
        path.write_text(content)
        assert own_store.entries().column("hash").to_pylist() == [second]
        [row] = own_store.damaged().to_pylist()
        assert problem in row["reason"], row
        with pytest.raises(nearpage.StoreError):
            own_store.entry(first)
    (Path(own_store.url) / events_names(second)[0]).unlink()
    with pytest.raises(nearpage.StoreError, match="is not there"):
        own_store.events(second)
    with pytest.raises(nearpage.StoreError, match="no entry 'ffffffffff'"):
        own_store.bundle("ffffffffff")


@pytest.mark.parametrize("count", [2000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_a_catalogue_of_many_entries(small_store: fleet.Store, count: int) -> None:
    """Listed, and listed again from the cache."""
    memory = Path("/dev/shm")
    # A disk takes longer to forget so many files than to read them.
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        shutil.copytree(small_store.url, f"{folder}/store")
        many_entries(fleet.Store.open(f"{folder}/store"), count)


def many_entries(own_store: fleet.Store, count: int) -> None:
    entry = json.loads(own_store.files.read(f"catalogue/{own_store.hashes()[0]}.json"))
    folder = Path(own_store.url) / "catalogue"
    for at in range(count):
        hash = f"{at:064x}"
        (folder / f"{hash}.json").write_text(json.dumps({**entry, "hash": hash, "load": f"load {at % 100}"}))
    assert own_store.entries().num_rows == count + 2
    begun = time.monotonic()
    assert len(own_store.select(["load 7"])) == count // 100
    assert time.monotonic() - begun < 10
    assert (Path(own_store.url) / "catalogue.parquet").stat().st_size < 20 << 20
    # The cache adds nothing that is not there.
    (folder / f"{0:064x}.json").unlink()
    assert own_store.entries().num_rows == count + 1


def small_events(store: fleet.Store, tmp_path: Path) -> bytes:
    table = store.events(store.hashes()[0]).to_arrow().slice(0, 3000)
    pq.write_table(table, tmp_path / "small.parquet", compression="zstd")
    return (tmp_path / "small.parquet").read_bytes()


def test_damaged_parquet_is_an_error_with_its_place(small_store: fleet.Store, tmp_path: Path) -> None:
    whole = small_events(small_store, tmp_path)
    path = tmp_path / "x.parquet"
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    refused = 0
    for _ in range(300):
        content = bytearray(whole)
        for _ in range(draw.randrange(1, 8)):
            kind = draw.randrange(3)
            at = draw.randrange(len(content))
            if kind == 0:
                content[at] ^= 1 << draw.randrange(8)
            elif kind == 1:
                del content[at : at + draw.randrange(1, 200)]
            else:
                content[at:at] = draw.randbytes(draw.randrange(1, 50))
        path.write_bytes(content)
        try:
            events = fleet.EventFile(path, "damaged")
            for batch in events.batches():
                batch.validate(full=True)
        except nearpage.StoreError as error:
            refused += 1
            assert error.place == "damaged" and "expected" in str(error)
        except pa.ArrowInvalid:
            # What is in the pages is not what a column can have.
            refused += 1
    assert refused > 200
    pq.write_table(pa.table({"time": [1], "cpu": ["x"]}), path)
    with pytest.raises(nearpage.StoreError, match=r"no table of events, expected the columns time \(duration"):
        fleet.EventFile(path, "other")


def test_clocks_that_go_back_are_counted(small_bundles: list[Path], tmp_path: Path) -> None:
    files = shortened(unpacked(small_bundles[0]), 4000)
    lines = files["trace.txt"].splitlines(keepends=True)
    at = [index for index, line in enumerate(lines) if b"mm_page_free:" in line][100:200]
    for index in at:
        stamp = lines[index].split(b": ", 1)[0].split()[-1]
        lines[index] = lines[index].replace(stamp, b"%.6f" % (float(stamp) - 0.5), 1)
    files["trace.txt"] = b"".join(lines)
    store = fleet.Store.create(tmp_path / "store")
    [one] = fleet.ingest(store, [write_tar(files, tmp_path / "back.tar.zst")])
    assert one.reason is None
    entry = store.entry(str(one.hash))
    assert entry["unsorted"] >= 90 and entry["seconds"] > 0
    assert fleet.run(fleet.Study(), store=store).column("holds")[0].as_py() > 0


def test_the_command_lists_and_shows(small_store: fleet.Store, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert cli.main(["ls", "--store", small_store.url]) == 0
    out = capsys.readouterr().out
    assert "longer" in out and "2 entries, 0 damaged" in out
    assert cli.main(["ls", "--json", "--store", small_store.url]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [of["load"] for of in listed["entries"]] == ["longer", "short"]
    hash = listed["entries"][0]["hash"]
    assert cli.main(["show", hash[:6], "--events", "3", "--json", "--store", small_store.url]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["hash"] == hash and len(shown["first_events"]) == 3
    assert shown["first_events"][0]["time"] == 15_501_580_000
    assert cli.main(["show", "0000", "--store", small_store.url]) == 2
    assert "no entry '0000'" in capsys.readouterr().err
    assert cli.main(["ls", "--store", str(tmp_path)]) == 2
    assert "is no store" in capsys.readouterr().err
    with pytest.raises(SystemExit) as error:
        cli.main(["--store", small_store.url, "ls"])
    assert error.value.code == 2 and "--store stands before the command" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    assert "tune" in capsys.readouterr().out


def test_names_of_loads_stay_on_their_line(small_bundles: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = fleet.Store.create(tmp_path / "store")
    fleet.ingest(store, small_bundles[:1], load="ラ\n\x1b[31m\u202e")
    assert store.entries().column("load").to_pylist() == ["ラ\n\x1b[31m\u202e"]
    assert cli.main(["ls", "--store", store.url]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 and "ラ\\n\\x1b[31m\\u202e" in lines[1]


def test_what_is_not_there_is_no_damage(own_store: fleet.Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["ingest", str(tmp_path / "none"), "--store", own_store.url]) == 2
    assert "is not there, expected a bundle" in capsys.readouterr().err
    assert own_store.damaged().num_rows == 0
    assert cli.main(["ingest", str(tmp_path), "--redact", "--salt-file", str(tmp_path / "salt"), "--store", own_store.url]) == 2
    assert "expected a file with 8 bytes or more" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main(["show", "0000", "--events", "-5", "--store", own_store.url])
    assert "expected a number from 0 on" in capsys.readouterr().err


def test_a_place_that_cannot_be_reached_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    class Unreachable(LocalFiles):
        def read(self, name: str) -> bytes:
            raise RuntimeError("no credentials")

    monkeypatch.setattr("nearpage.fleet.store.open_files", lambda url, options: Unreachable(Path(url)))
    for make in (fleet.Store.open, fleet.Store.create):
        with pytest.raises(nearpage.StoreError, match="no credentials, expected a place that can be reached") as caught:
            make("s3://elsewhere/x")
        assert caught.value.place == "s3://elsewhere/x"
    assert cli.main(["ls", "--store", "s3://elsewhere/x"]) == 2
    assert "no credentials" in capsys.readouterr().err


def test_archives_and_folders_of_strangers_are_read_within_bounds(small_bundles: list[Path], tmp_path: Path) -> None:
    """A tar with a name of 300 MB takes a few MB, and a link in a folder leads to no file of this machine."""
    secret = tmp_path / "secret"
    secret.write_text("topsecret")
    long = tmp_path / "long.tar"
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 300 << 20
    with gzip.open(long.with_suffix(".tar.gz"), "wb", compresslevel=1) as packed:
        packed.write(header.tobuf(tarfile.GNU_FORMAT))
        for _ in range(300):
            packed.write(b"a" * (1 << 20))
        packed.write(tarfile.TarInfo("meta.json").tobuf())
    many = tmp_path / "many.tar"
    with many.open("wb") as archive:
        for number in range(50_000):
            archive.write(tarfile.TarInfo(f"{number:090}").tobuf())
    files = unpacked(small_bundles[0])
    folder = write_folder(files, tmp_path / "folder")
    (folder / "before" / "payload").symlink_to(secret)
    (folder / "elsewhere").symlink_to(tmp_path)
    (folder / "fifo").parent.mkdir(exist_ok=True)
    os.mkfifo(folder / "fifo")
    script = (
        "import resource, sys, nearpage.fleet as fleet\n"
        "store = fleet.Store.create(sys.argv[1])\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "for one in fleet.ingest(store, sys.argv[2:]): print(one.reason)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "of long"), f"{long}.gz", str(many)]
    # From elsewhere: the folder of the sources has no native half.
    printed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.splitlines()
    assert "256 KiB of names and headers" in printed[0] and "4 MiB of names" in printed[1], printed
    assert int(printed[2]) < 64 << 10, printed
    store = fleet.Store.create(tmp_path / "store")
    [one] = fleet.ingest(store, [folder])
    assert one.reason is None
    with store.local_bundle(str(one.hash)) as path, tarfile.open(path) as archive:
        assert sorted(member.name for member in archive) == sorted(f"folder/{name}" for name in files)
