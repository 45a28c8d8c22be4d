"""Stores by fsspec: S3 as moto serves it, and memory."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from fleet_help import content_of

import nearpage
import nearpage.fleet as fleet
from nearpage.fleet import claims, cli, measure

pytest.importorskip("fsspec")
STUDY = fleet.Study(models=["linux-6.18", "nearpage"])


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, object]]:
    """Options for a bucket ``fleet`` that moto serves."""
    pytest.importorskip("s3fs")
    pytest.importorskip("moto")
    pytest.importorskip("flask")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = (tmp_path_factory.mktemp("moto") / "log").open("wb")
    server = subprocess.Popen([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], stdout=log, stderr=log, cwd="/")
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(300):
            try:
                urllib.request.urlopen(f"{url}/moto-api/", timeout=1).close()
                break
            except OSError:
                time.sleep(0.1)
        names = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_DEFAULT_REGION": "us-east-1", "AWS_ENDPOINT_URL": url}
        before = {name: os.environ.get(name) for name in names}
        os.environ.update(names)
        import s3fs

        s3fs.S3FileSystem().mkdir("fleet")
        yield {"endpoint": url}
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
    finally:
        server.kill()
        server.wait()


@pytest.fixture(scope="module")
def remote(s3: dict[str, object], small_bundles: list[Path]) -> str:
    """The URL of a store on S3."""
    url = "s3://fleet/a prefix/störe"
    assert cli.main(["ingest", "--store", url, *map(str, small_bundles)]) == 0
    return url


def test_a_store_on_s3_is_as_a_local_one(remote: str, small_store: fleet.Store) -> None:
    store = fleet.Store.open(remote)
    assert store.entries().drop_columns(["bundle"]).equals(small_store.entries().drop_columns(["bundle"]))
    hash = store.hashes()[0]
    assert store.events(hash).to_arrow().equals(small_store.events(hash).to_arrow())
    assert content_of(store, "entries") == content_of(small_store, "entries")
    with pytest.raises(nearpage.StoreError, match="is no store"):
        fleet.Store.open("s3://fleet/elsewhere")
    again = fleet.ingest(store, [])
    assert again == []


def test_a_study_runs_on_s3(remote: str, small_store: fleet.Store, tmp_path: Path) -> None:
    shutil.copytree(small_store.url, tmp_path / "store")
    local = fleet.Store.open(tmp_path / "store")
    expected = fleet.run(STUDY, store=local)
    store = fleet.Store.open(remote)
    assert fleet.run(STUDY, store=store, executor=fleet.Processes(2)).equals(expected)
    assert content_of(store) == content_of(local)
    assert list(store.files.names("claims")) == []
    # A damaged result is computed again.
    name = sorted(content_of(store))[0]
    store.files.replace(name, b"{")
    assert fleet.run(STUDY, store=store).equals(expected)
    assert content_of(store) == content_of(local)


def test_what_is_there_is_not_made_again(remote: str) -> None:
    files = fleet.Store.open(remote).files
    assert files.create("claims/x", b"1") and not files.create("claims/x", b"2")
    assert files.read("claims/x") == b"1"
    files.delete("claims/x")
    files.delete("claims/x")
    with pytest.raises(FileNotFoundError):
        files.read("claims/x")
    found = dict(files.read_many(["claims/x", "store.json"]))
    assert found["claims/x"] is None and found["store.json"]
    assert dict(files.read_many(["claims/x"])) == {"claims/x": None}


def test_of_many_that_claim_at_once_one_wins(remote: str) -> None:
    key = "ef" * 32
    won: list[claims.Claim] = []
    begin = threading.Barrier(6)

    def claim() -> None:
        files = fleet.Store.open(remote).files
        begin.wait()
        taken = claims.take(files, key)
        if isinstance(taken, claims.Claim):
            won.append(taken)

    threads = [threading.Thread(target=claim) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    won[0].release()


def test_two_runs_at_once_on_s3(remote: str, monkeypatch: pytest.MonkeyPatch) -> None:
    study = fleet.Study(models=["linux-6.1", "linux-6.12"])
    computed: list[str] = []
    original = measure.compute

    def counted(store: fleet.Store, task: fleet.Task, prepared: measure.Prepared) -> bytes:
        computed.append(task.key)
        return original(store, task, measure.Prepared())

    monkeypatch.setattr(measure, "compute", counted)
    tables: list[pa.Table] = []
    runs = [threading.Thread(target=lambda: tables.append(fleet.run(study, store=fleet.Store.open(remote), lease=5))) for _ in range(2)]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    assert len(tables) == 2 and tables[0].equals(tables[1])
    # At most twice; with claims, once.
    assert len(computed) == 4 == len(set(computed))


def test_a_store_in_memory() -> None:
    """What fsspec has besides: conditional puts are asked of it, whichever it is."""
    store = fleet.Store.create("memory://fleet-of-the-tests")
    assert store.entries().num_rows == 0 and fleet.Store.open(store.url).url == store.url
    assert store.files.create("x", b"1") and not store.files.create("x", b"2")
