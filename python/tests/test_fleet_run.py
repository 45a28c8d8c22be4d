"""Studies run: the same bytes everywhere, what is missing and nothing else, claims."""

from __future__ import annotations

import concurrent.futures
import json
import os
import pickle
import random
import re
import subprocess
import sys
import threading
import time
import types
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fleet_help import MIXED, content_of, shortened, unpacked, write_tar

import nearpage
import nearpage.fleet as fleet
from nearpage.fleet import claims, cli, measure, results
from nearpage.fleet.executors import as_executor
from nearpage.fleet.files import process_is_gone, this_process

STUDY = fleet.Study(models=["linux-6.18", "nearpage"], settings=[{}, {"pcp.batch_scale_max": 0}])


@pytest.fixture(scope="module")
def undisturbed(small_store: fleet.Store, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The results of an undisturbed run in this process."""
    import shutil

    path = tmp_path_factory.mktemp("undisturbed") / "store"
    shutil.copytree(small_store.url, path)
    store = fleet.Store.open(path)
    fleet.run(STUDY, store=store)
    return content_of(store)


def test_figures_are_those_of_the_comparison(own_store: fleet.Store, small_bundles: list[Path]) -> None:
    table = fleet.run(fleet.Study(models=["linux-6.18", "nearpage"]), store=own_store)
    assert table.column_names == list(results.COLUMNS)
    rows = {(row["load"], row["model"]): row for row in table.to_pylist()}
    compared = nearpage.compare_rules(small_bundles, ["nearpage"]).to_dict()["rows"]
    assert len(rows) == len(compared) == 4
    for row in compared:
        own = rows[row["bundle"], row["model"]]
        for name in set(row) & set(own) - {"model"}:
            assert own[name] == row[name], name
        assert own["holds_refill"] == row["holds_by_cause"]["refill"]
        assert own["holds"] == sum(own[f"holds_{cause}"] for cause in ("refill", "drain", "direct", "foreign", "upkeep"))
        assert own["events"] > 5000 and own["requests"] > 1000 and own["seconds"] > 0
        assert (own["settings"], own["what_if"], own["seed"], own["version"]) == ("{}", "", 0, nearpage.__version__)
    assert table.column("key").to_pylist() == sorted(table.column("key").to_pylist())


def test_auto_is_each_recordings_own_kernel(own_store: fleet.Store, tmp_path: Path) -> None:
    files = unpacked(MIXED)
    older = {**shortened(files, 6000), "meta.json": files["meta.json"].replace(b"6.12.95+deb12", b"6.1.0-9")}
    fleet.ingest(own_store, [write_tar(older, tmp_path / "older.tar.zst")])
    table = fleet.run(fleet.Study(models=["auto", "linux-6.1", "linux-6.12"]), store=own_store)
    rows = {(row["load"], row["model"]): row for row in table.to_pylist()}
    for load, own in (("short", "linux-6.12"), ("longer", "linux-6.12"), ("older", "linux-6.1")):
        auto = rows[load, "auto"]
        assert auto["rules"] == own == rows[load, own]["rules"]
        assert {name: auto[name] for name in results.FIGURES} == {name: rows[load, own][name] for name in results.FIGURES}
    assert rows["older", "auto"]["first_holds"] != rows["short", "auto"]["first_holds"]


def test_passes_are_told_apart_and_rows_say_where_they_come_from(own_store: fleet.Store, small_bundles: list[Path]) -> None:
    table = fleet.run(fleet.Study(models=["linux-6.18"], seeds=[0, 7]), store=own_store)
    first = {row["bundle"]: row for row in nearpage.compare_rules(small_bundles, []).to_dict()["first_pass"]}
    for row in table.to_pylist():
        assert row["start"] == ("likely" if row["seed"] == 0 else "drawn")
        assert (row["first_holds"] == first[row["load"]]["holds"]) == (row["seed"] == 0) and row["first_holds"] != row["holds"]
        own = nearpage.Bundle.open(next(path for path in small_bundles if path.name.startswith(row["load"]))).replay()
        assert row["fidelity"] == own.fidelity.percent
        [refills] = [of for of in own.fidelity.rows.to_dicts() if (of["quantity"], of["where"]) == ("refills", "all")]
        told = 100 * ((refills["predicted"] + 32) / (refills["recorded"] + 32) - 1)
        assert row["error_percent_holds_refill"] == pytest.approx(told)
        assert "error_percent_whole_mean" not in row, "no kernel logs it"


def test_another_machine_and_other_starts_are_other_keys(own_store: fleet.Store) -> None:
    study = fleet.Study(machines=["recorded", {"cpus": 8, "repeat": 2}, "memoryless-8n2m"], seeds=[0, 1], entries=["short"])
    table = fleet.run(study, store=own_store)
    assert table.num_rows == 6 and len(set(table.column("holds").to_pylist())) > 3
    whats = {text and json.loads(text).get("name", "scaled") for text in table.column("what_if").to_pylist()}
    assert whats == {"", "scaled", "memoryless-8n2m"}


def test_running_again_computes_what_is_missing(own_store: fleet.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[str] = []
    original = measure.compute

    def counted(store: fleet.Store, task: fleet.Task, prepared: measure.Prepared) -> bytes:
        computed.append(task.key)
        return original(store, task, prepared)

    monkeypatch.setattr(measure, "compute", counted)
    told: list[tuple[int, int]] = []
    first = fleet.run(fleet.Study(models=["nearpage"]), store=own_store, progress=lambda *now: told.append(now))
    assert len(computed) == 2 and told[0] == (0, 2) and told[-1] == (2, 2) and told == sorted(told)
    fleet.run(STUDY, store=own_store)
    assert len(computed) == 8 == len(set(computed))
    before = content_of(own_store)
    fleet.run(STUDY, store=own_store)
    assert len(computed) == 8 and content_of(own_store) == before
    # One that is damaged is computed again, and one that is gone.
    names = sorted(before)
    (Path(own_store.url) / names[0]).write_bytes(own_store.files.read(names[0])[:-20])
    (Path(own_store.url) / names[1]).write_bytes(b"")
    (Path(own_store.url) / names[2]).unlink()
    assert own_store.results(STUDY).num_rows == 5
    assert fleet.run(STUDY, store=own_store).num_rows == 8
    assert content_of(own_store) == before
    assert own_store.results(fleet.Study(models=["nearpage"])).equals(first)
    assert list(own_store.files.names("claims")) == []


def test_results_of_other_versions_are_not_mixed(own_store: fleet.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    study = fleet.Study(entries=["short"])
    fleet.run(study, store=own_store)
    before = content_of(own_store)
    real = nearpage._nearpage.model_version

    def other(name: str) -> str:
        return real(name)[::-1]

    monkeypatch.setattr(nearpage._nearpage, "model_version", other)
    assert own_store.results().num_rows == 0 and own_store.results(study).num_rows == 0
    assert own_store.results(versions="all").num_rows == 1
    fleet.run(study, store=own_store)
    monkeypatch.undo()
    assert own_store.results().num_rows == 1
    both = own_store.results(versions="all")
    assert both.num_rows == 2 == len(set(both.column("model_version").to_pylist()))
    assert before.items() <= content_of(own_store).items()
    # A worker with other code refuses a task of this one.
    task = fleet.Task(**{**vars(own_store.tasks(study)[0]), "version": "9.9"})
    with pytest.raises(nearpage.StoreError, match=r"this worker has nearpage .*, expected 9\.9"):
        measure.compute(own_store, task, measure.Prepared())


def test_a_key_that_fails_stops_nothing(own_store: fleet.Store) -> None:
    wrong = (Path(own_store.url) / own_store.entry(own_store.hashes()[0])["bundle"])
    wrong.write_bytes(wrong.read_bytes()[:1000])
    with pytest.raises(nearpage.RunError, match="1 of 2 keys failed") as caught:
        fleet.run(fleet.Study(), store=own_store)
    assert caught.value.results is not None and caught.value.results.num_rows == 1 and len(caught.value.failures) == 1
    assert "ReplayError" in next(iter(caught.value.failures.values()))
    assert list(own_store.files.names("claims")) == []
    impossible = fleet.Study(entries=[own_store.hashes()[1][:12]], machines=["--numa 2G"])
    with pytest.raises(nearpage.RunError, match="has no CPUs, expected"):
        fleet.run(impossible, store=own_store)


@pytest.mark.parametrize("kind", ["threads", "processes", "dask", "client", "ray"])
def test_every_executor_gives_the_same_bytes(kind: str, own_store: fleet.Store, undisturbed: dict[str, str]) -> None:
    if kind == "threads":
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            table = fleet.run(STUDY, store=own_store, executor=pool)
    elif kind == "processes":
        table = fleet.run(STUDY, store=own_store, executor=fleet.Processes(2))
    elif kind == "dask":
        pytest.importorskip("distributed")
        table = fleet.run(STUDY, store=own_store, executor=fleet.Dask(workers=2))
    elif kind == "client":
        distributed = pytest.importorskip("distributed")
        with distributed.Client(processes=False, n_workers=1, dashboard_address=None) as client:
            table = fleet.run(STUDY, store=own_store, executor=client)
            assert client.status == "running", "it stays its owner's"
    else:
        pytest.importorskip("ray")
        with fleet.Ray(workers=2) as executor:
            table = fleet.run(STUDY, store=own_store, executor=executor)
    assert table.num_rows == 8
    assert content_of(own_store) == undisturbed


class SlowFiles:
    """Objects that are far away: each call takes a while, and threads take turns in it."""

    def __init__(self, files: Any) -> None:
        self._files = files

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._files, name)
        if not callable(found):
            return found

        draws = random.Random(threading.get_ident())

        def slowly(*arguments: Any) -> Any:
            time.sleep(draws.random() / 100)
            return found(*arguments)

        return slowly


def slow_store(store: fleet.Store) -> fleet.Store:
    return fleet.Store(SlowFiles(store.files), store.url, {})


def test_threads_with_a_slow_store_do_not_mix_loads(own_store: fleet.Store, undisturbed: dict[str, str]) -> None:
    """Each key has the figures of its own load, however threads take turns in preparing them."""
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        fleet.run(STUDY, store=slow_store(own_store), executor=pool, chunk=1)
    assert content_of(own_store) == undisturbed


def test_dask_workers_with_threads_are_all_at_work(own_store: fleet.Store, undisturbed: dict[str, str]) -> None:
    distributed = pytest.importorskip("distributed")
    with distributed.Client(processes=False, n_workers=2, threads_per_worker=4, dashboard_address=None) as client:
        assert as_executor(client).workers == 8
        fleet.run(STUDY, store=own_store, executor=client, chunk=1)
    assert content_of(own_store) == undisturbed


def test_the_claim_of_each_thread_beats(own_store: fleet.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys that take longer than a lease, two in one process: nobody takes them over."""
    study, beats = fleet.Study(measure="nothing", seeds=range(2), entries=["short"]), dict[str, int]()
    keys = [task.key for task in own_store.tasks(study)]
    both = threading.Barrier(2)

    def long(store: fleet.Store, task: fleet.Task, _: measure.Prepared) -> bytes:
        both.wait(10)
        time.sleep(1.0)
        beats[task.key] = json.loads(store.files.read(f"claims/{task.key[:2]}/{task.key}.0"))["beat"]
        return results.sealed(task, {})

    monkeypatch.setattr(measure, "compute", long)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        fleet.run(study, store=own_store, executor=pool, lease=0.4, chunk=1)
    assert sorted(beats) == sorted(keys) and min(beats.values()) >= 3, beats


def test_what_is_no_executor_is_refused(own_store: fleet.Store) -> None:
    with pytest.raises(nearpage.ArgumentError, match="expected None, an executor"):
        as_executor(3)  # type: ignore[arg-type]
    with pytest.raises(nearpage.ArgumentError, match="lease=0"):
        fleet.run(STUDY, store=own_store, lease=0)
    with pytest.raises(nearpage.ArgumentError, match="chunk=-1, expected 1 or more"):
        fleet.run(STUDY, store=own_store, chunk=-1)
    with pytest.raises(nearpage.ArgumentError, match="workers=0"):
        fleet.Processes(0)
    pytest.importorskip("distributed")
    with pytest.raises(nearpage.ArgumentError, match="expected the address of a Dask scheduler"):
        fleet.Dask("tcp://127.0.0.1:9", patience=0.1)
    with pytest.raises(nearpage.ArgumentError, match="expected the address of a Dask scheduler"):
        fleet.Dask("nonsense://x", patience=0.1)


def test_who_waits_for_a_scheduler_says_so(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    class Client:
        left = 2

        def __init__(self, address: str, timeout: float) -> None:
            Client.left -= 1
            # The first word comes after one attempt.
            assert timeout <= 5
            if Client.left:
                raise OSError("refused")

        def scheduler_info(self) -> dict[str, dict[str, object]]:
            return {"workers": {}}

        def close(self, timeout: float) -> None:
            pass

    monkeypatch.setattr("nearpage.fleet.executors._needed", lambda *_: types.SimpleNamespace(Client=Client))
    with fleet.Dask("tcp://far:8786"):
        pass
    waits, idle = [record.getMessage() for record in caplog.records]
    assert re.fullmatch(r"tcp://far:8786: no Dask scheduler answers: waiting for it, (60|59) seconds more", waits)
    assert idle == "tcp://far:8786: the scheduler has no worker yet: tasks wait for one"


def test_a_worker_without_the_package_is_named(own_store: fleet.Store) -> None:
    class Elsewhere:
        def submit(self, call: Any, *arguments: Any) -> concurrent.futures.Future[Any]:
            future: concurrent.futures.Future[Any] = concurrent.futures.Future()
            future.set_exception(ModuleNotFoundError("No module named 'nearpage'"))
            return future

    with pytest.raises(nearpage.StoreError, match="No module named 'nearpage', expected nearpage with its extra fleet"):
        fleet.run(STUDY, store=own_store, executor=Elsewhere())


def test_an_empty_store_and_unknown_entries_are_named(own_store: fleet.Store, tmp_path: Path) -> None:
    with pytest.raises(nearpage.StoreError, match="is empty, expected entries"):
        fleet.run(STUDY, store=fleet.Store.create(tmp_path / "empty"))
    with pytest.raises(nearpage.StoreError, match="no entry is 'a load', expected all"):
        fleet.run(fleet.Study(entries=["a load"]), store=own_store)
    assert own_store.select(["s*rt"]) == own_store.select(["short"])
    assert fleet.Store.create(tmp_path / "empty").results().num_rows == 0


def test_two_runs_at_once_compute_each_key_once(own_store: fleet.Store, monkeypatch: pytest.MonkeyPatch, undisturbed: dict[str, str]) -> None:
    computed: list[str] = []
    original = measure.compute

    def counted(store: fleet.Store, task: fleet.Task, prepared: measure.Prepared) -> bytes:
        computed.append(task.key)
        time.sleep(0.05)
        return original(store, task, measure.Prepared())

    monkeypatch.setattr(measure, "compute", counted)
    tables: list[pa.Table] = []
    # Each has its hands on the store by itself.
    runs = [threading.Thread(target=lambda: tables.append(fleet.run(STUDY, store=fleet.Store.open(own_store.url), lease=5))) for _ in range(3)]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    assert len(tables) == 3 and tables[0].equals(tables[1]) and tables[1].equals(tables[2])
    assert sorted(computed) == sorted(set(computed)) and len(computed) == 8
    assert content_of(own_store) == undisturbed


def test_a_claim_is_of_one_and_the_dead_are_taken_over(own_store: fleet.Store) -> None:
    files, key = own_store.files, "ab" * 32
    own = claims.take(files, key)
    assert isinstance(own, claims.Claim)
    other = claims.take(files, key)
    assert isinstance(other, claims.Busy)
    # It beats: what others see changes.
    own.beat(1)
    later = claims.take(files, key)
    assert isinstance(later, claims.Busy) and later.state != other.state
    assert isinstance(claims.take(files, key, other.state), claims.Busy), "an old state is not that of the claim"
    # Seen unchanged for a lease, it is dead. Of several that take over, one wins.
    winners = [claim for claim in (claims.take(files, key, later.state) for _ in range(3)) if isinstance(claim, claims.Claim)]
    assert [claim.generation for claim in winners] == [1]
    own.beat(2)
    winners[0].release()
    assert list(files.names("claims")) == []
    own.beat(3)
    assert list(files.names("claims")) == [], "what was given up does not come back"


def test_the_claim_of_a_killed_process_is_taken_over_at_once(own_store: fleet.Store) -> None:
    key = "cd" * 32
    program = (
        "import sys, os; from nearpage.fleet import Store, claims;"
        "claims.take(Store.open(sys.argv[1]).files, sys.argv[2]); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", program, own_store.url, key], cwd=own_store.url)
    assert len(list(own_store.files.names("claims"))) == 1
    claim = claims.take(own_store.files, key)
    assert isinstance(claim, claims.Claim) and claim.generation == 1
    claim.release()


def test_a_silent_claim_of_another_machine_is_taken_over_after_its_lease(own_store: fleet.Store) -> None:
    study = fleet.Study(entries=["short"])
    [task] = own_store.tasks(study)
    there = json.dumps({"boot": "another machine", "pid": 1, "begun": "1", "token": "x", "beat": 0})
    own_store.files.create(f"claims/{task.key[:2]}/{task.key}.0", there.encode())
    begun = time.monotonic()
    assert fleet.run(study, store=own_store, lease=1.0).num_rows == 1
    assert 1.0 <= time.monotonic() - begun < 10
    assert list(own_store.files.names("claims")) == []


def test_claims_that_several_machines_lost_are_taken_over_after_a_lease(own_store: fleet.Store) -> None:
    """The second machine took over from the first, and was lost, too: the claim to watch is the last."""
    study = fleet.Study(entries=["short"], measure="nothing")
    [task] = own_store.tasks(study)
    for generation in range(3):
        there = json.dumps({"boot": f"machine {generation}", "pid": 1, "begun": "1", "token": "x", "beat": 0})
        own_store.files.create(f"claims/{task.key[:2]}/{task.key}.{generation}", there.encode())
    program = (
        "import sys; from nearpage.fleet import Store, Study, run;"
        "run(Study(entries=['short'], measure='nothing'), store=Store.open(sys.argv[1]), lease=0.5)"
    )
    subprocess.run([sys.executable, "-c", program, own_store.url], cwd=own_store.url, timeout=60, check=True)
    assert own_store.result(task) is not None
    assert list(own_store.files.names("claims")) == []


def test_a_key_that_too_many_workers_were_lost_with_fails(own_store: fleet.Store) -> None:
    study = fleet.Study(entries=["short"], measure="nothing")
    [task] = own_store.tasks(study)
    gone = json.dumps({**this_process(), "pid": 1 << 22, "begun": "1", "token": "x", "beat": 0})
    for generation in range(64):
        own_store.files.create(f"claims/{task.key[:2]}/{task.key}.{generation}", gone.encode())
    with pytest.raises(nearpage.StoreError, match="64 workers were lost with this key, expected up to 63") as caught:
        claims.take(own_store.files, task.key)
    assert caught.value.place == f"claims/{task.key[:2]}/{task.key}.0"
    program = (
        "import sys; from nearpage.fleet import Store, Study, run; from nearpage import RunError\n"
        "try: run(Study(entries=['short'], measure='nothing'), store=Store.open(sys.argv[1]))\n"
        "except RunError as error: print(error)"
    )
    ended = subprocess.run([sys.executable, "-c", program, own_store.url], cwd=own_store.url, timeout=60, check=True, capture_output=True, text=True)
    assert "64 workers were lost" in ended.stdout


def test_processes_of_other_containers_are_not_judged(own_store: fleet.Store) -> None:
    """Containers of one machine share its boot, and not the numbers of its processes."""
    program = "import json, sys; from nearpage.fleet import files; print(json.dumps(files.this_process()), flush=True); sys.stdin.read()"
    command = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", program]
    try:
        inside = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=own_store.url)
    except FileNotFoundError:
        pytest.skip("there is no unshare")
    told, problem = "", ""
    with inside:
        assert inside.stdout is not None and inside.stderr is not None
        told = inside.stdout.readline()
        is_gone = told and process_is_gone(json.loads(told))
        problem = "" if told else inside.stderr.read()
    if not told:
        pytest.skip(f"no PID namespace can be made: {problem.strip()}")
    assert not is_gone, "it lives, under another number"


def test_errors_go_from_process_to_process() -> None:
    error = pickle.loads(pickle.dumps(nearpage.RunError("1 of 2 keys failed", "a store", {"ab": "reason"}, pa.table({"x": [1]}))))
    assert (str(error), error.place, error.failures, error.results.num_rows) == ("1 of 2 keys failed", "a store", {"ab": "reason"}, 1)


def test_a_lost_worker_is_replaced(own_store: fleet.Store, undisturbed: dict[str, str]) -> None:
    with fleet.Processes(2) as executor:
        killed: list[int] = []

        def kill(done: int, whole: int) -> None:
            if done and not killed:
                victim = next(iter(executor._pool._processes))
                killed.append(victim)
                os.kill(victim, 9)

        table = fleet.run(STUDY, store=own_store, executor=executor, progress=kill, chunk=1)
    assert killed and table.num_rows == 8
    assert content_of(own_store) == undisturbed


def test_a_key_that_kills_its_workers_is_found_out(own_store: fleet.Store) -> None:
    """All that is under way suffers when a worker is lost, as with a pool of processes; the others are finished all the same."""
    victim = own_store.tasks(STUDY)[3].key

    class Deadly:
        _max_workers = 4

        def __init__(self) -> None:
            self.under_way: list[tuple[concurrent.futures.Future[Any], tuple[Any, ...]]] = []

        def submit(self, call: Any, *arguments: Any) -> concurrent.futures.Future[Any]:
            future: concurrent.futures.Future[Any] = concurrent.futures.Future()
            self.under_way.append((future, (call, *arguments)))
            threading.Timer(0.01, self.work).start()
            return future

        def work(self) -> None:
            some, self.under_way = self.under_way, []
            is_deadly = any(task.key == victim for _, (_, _, tasks, *_) in some for task in tasks)
            for future, (call, *arguments) in some:
                if is_deadly:
                    future.set_exception(concurrent.futures.BrokenExecutor("killed"))
                else:
                    future.set_result(call(*arguments))

    with pytest.raises(nearpage.RunError, match="6 workers were lost with it") as caught:
        fleet.run(STUDY, store=own_store, executor=Deadly())
    assert list(caught.value.failures) == [victim] and caught.value.results is not None and caught.value.results.num_rows == 7


def test_workers_that_do_not_come_back_end_a_run(own_store: fleet.Store) -> None:
    class Gone:
        def submit(self, call: Any, *arguments: Any) -> concurrent.futures.Future[Any]:
            raise ConnectionError("gone")

    with pytest.raises(nearpage.RunError, match="they do not come back"):
        fleet.run(STUDY, store=own_store, executor=Gone())


def test_a_full_disk_loses_nothing(own_store: fleet.Store, undisturbed: dict[str, str]) -> None:
    program = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "from nearpage.fleet.cli import main;"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (300, 300));"
        "sys.exit(main(['run', sys.argv[1], '--store', sys.argv[2], '--workers', '0']))"
    )
    path = Path(own_store.url).parent / "study.toml"
    path.write_text('models = ["linux-6.18", "nearpage"]\n[[settings]]\n[[settings]]\npcp.batch_scale_max = 0\n')
    full = subprocess.run([sys.executable, "-B", "-c", program, str(path), own_store.url], capture_output=True, text=True, cwd=path.parent)
    assert full.returncode == 1 and "8 of 8 keys failed" in full.stderr and "too large" in full.stderr, full
    assert content_of(own_store) == {}
    assert cli.main(["run", str(path), "--store", own_store.url, "--workers", "2", "--quiet"]) == 0
    assert content_of(own_store) == undisturbed


def test_empty_tasks_go_all_the_way(own_store: fleet.Store) -> None:
    study = fleet.Study(measure="nothing", seeds=range(500))
    table = fleet.run(study, store=own_store)
    assert table.num_rows == 1000 and table.column("holds").null_count == 1000


@pytest.mark.parametrize("keys", [1000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_of_many_keys_a_tenth_may_be_damaged(keys: int, own_store: fleet.Store, caplog: pytest.LogCaptureFixture) -> None:
    study = fleet.Study(measure="nothing", seeds=range(keys // 2))
    before = fleet.run(study, store=own_store)
    kept = content_of(own_store)
    names = sorted(kept)
    draws = random.Random(53)
    victims = draws.sample(names, keys // 10)
    for at, name in enumerate(victims):
        path = Path(own_store.url) / name
        content = path.read_bytes()
        flipped = bytearray(content)
        flipped[draws.randrange(len(content))] ^= 1 << draws.randrange(8)
        other = (Path(own_store.url) / draws.choice(names)).read_bytes() if at % 5 == 4 else b""
        path.write_bytes([b"", content[: len(content) // 2], bytes(flipped), b"\xff" * 300, other][at % 5])
    left = own_store.results(study)
    told = [record.getMessage() for record in caplog.records]
    damaged = keys - left.num_rows
    # One may have drawn itself as the other.
    assert keys // 10 - 2 <= damaged <= keys // 10 and told == [f"{own_store.url}: {damaged} damaged results left out: a run of their study computes them again"]
    assert fleet.run(study, store=own_store).equals(before) and content_of(own_store) == kept
    assert f"{own_store.url}: {damaged} damaged results, which this run computes again" in [record.getMessage() for record in caplog.records]


def test_the_command_writes_tables(own_store: fleet.Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "study.toml").write_text('entries = "short"\n')
    for ending in ("csv", "json", "parquet"):
        assert cli.main(["run", str(tmp_path / "study.toml"), "--store", own_store.url, "--workers", "0", "--output", str(tmp_path / f"x.{ending}")]) == 0
        assert (tmp_path / f"x.{ending}").stat().st_size > 300
    assert "1 key is finished" in capsys.readouterr().out
    # What could not be written is refused before hours of work.
    (tmp_path / "other.toml").write_text('entries = "short"\nseeds = [9]\n')
    before = own_store.finished()
    for output, accepted in (("x.xls", "expected .csv, .json or .parquet"), ("no/folder/x.csv", "there is no folder no/folder")):
        assert cli.main(["run", str(tmp_path / "other.toml"), "--store", own_store.url, "--workers", "0", "--output", output]) == 2
        assert accepted in capsys.readouterr().err and own_store.finished() == before
    pytest.importorskip("distributed")
    assert cli.main(["run", str(tmp_path / "other.toml"), "--store", own_store.url, "--dask", "0"]) == 2
    assert "workers=0, expected 1 or more" in capsys.readouterr().err
    (tmp_path / "study.toml").write_text('entries = "short"\nseed = 1\n')
    assert cli.main(["run", str(tmp_path / "study.toml"), "--store", own_store.url]) == 2
    assert "study.toml:2: there is no key 'seed'" in capsys.readouterr().err
