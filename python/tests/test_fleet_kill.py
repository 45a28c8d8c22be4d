"""A study on a Dask cluster whose scheduler, workers and client are killed at random times, and whose disk is full now and then.

What is started is as a site would have it: whatever dies is started again. In the end the results are, byte for byte, those of an
undisturbed run in one process.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fleet_help import MIXED, content_of, shortened, unpacked, write_tar

import nearpage
import nearpage.fleet as fleet

pytest.importorskip("distributed")

STUDY = """\
models = ["linux-6.1", "linux-6.12", "linux-6.18", "nearpage"]
[[settings]]
[over]
"pcp.batch_scale_max" = [0, 2, 4]
"pcp.free_high" = [true, false]
"""

#: A worker, or a client, for which every file is too large: what a full disk looks like.
_FULL = (
    "import resource, runpy, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
    "resource.setrlimit(resource.RLIMIT_FSIZE, (400, 400)); sys.argv = sys.argv[1:];"
    "runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"
)


class Site:
    """A scheduler, two workers and a client, each a process that is started again when it is no more."""

    def __init__(self, folder: Path, store: fleet.Store, study: Path, threads: int) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.folder, self.store, self.study, self.threads = folder, store, study, threads
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.is_full = False
        self.started = 0

    def command(self, name: str) -> list[str]:
        address = f"tcp://127.0.0.1:{self.port}"
        if name == "scheduler":
            return ["distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", str(self.port), "--no-dashboard"]
        if name == "client":
            return ["nearpage.fleet.cli", "run", str(self.study), "--store", self.store.url, "--scheduler", address, "--lease", "3"]
        local = str(self.folder / f"{name}-{self.started}")
        return ["distributed.cli.dask_worker", address, "--nthreads", str(self.threads), "--no-nanny", "--no-dashboard", "--local-directory", local]

    def keep_up(self) -> None:
        """Starts what is not there, and a client anew that ended with an error."""
        for name in ("scheduler", "worker 1", "worker 2", "client"):
            process = self.processes.get(name)
            if process is None or process.poll() not in (None, 0) or name != "client" and process.poll() is not None:
                self.started += 1
                command = [sys.executable, "-m", *self.command(name)]
                if self.is_full and name.startswith("worker"):
                    command = [sys.executable, "-B", "-c", _FULL, *self.command(name)]
                log = (self.folder / f"{name}.log").open("ab")
                self.processes[name] = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, cwd=self.folder)

    def kill(self, name: str) -> None:
        process = self.processes[name]
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def is_finished(self) -> bool:
        return self.processes["client"].poll() == 0

    def end(self) -> None:
        for name in self.processes:
            self.kill(name)


def disturbed(folder: Path, store: fleet.Store, seed: int, disasters: int, seconds: float, *, text: str = STUDY, threads: int = 1) -> int:
    """Runs the study with so many disasters: how many there were before it was finished."""
    draw = random.Random(seed)
    study = folder / "study.toml"
    study.write_text(text)
    site = Site(folder, store, study, threads)
    done = 0
    until = time.monotonic() + seconds
    try:
        site.keep_up()
        # The first one comes when something is finished.
        following = float("inf")
        while not site.is_finished():
            assert time.monotonic() < until, f"seed {seed}: {len(store.finished())} keys: " + "".join(
                f"\n--- {path.name}\n{path.read_text()[-1500:]}" for path in folder.glob("*.log")
            )
            if done == 0 and following == float("inf") and store.finished():
                following = time.monotonic() + draw.uniform(0, 1) * min(1.0, seconds / 200)
            if done < disasters and time.monotonic() > following:
                kind = draw.choice(["scheduler", "worker 1", "worker 2", "client", "all", "full"])
                site.is_full = kind == "full"
                if kind == "all":
                    site.end()
                elif kind == "full":
                    site.kill("worker 1")
                    site.kill("worker 2")
                else:
                    site.kill(kind)
                done += 1
                following = time.monotonic() + draw.uniform(1, 4)
            elif time.monotonic() > following and site.is_full:
                # There is room again.
                site.is_full = False
                site.kill("worker 1")
                site.kill("worker 2")
            site.keep_up()
            time.sleep(0.1)
    finally:
        site.end()
    return done


def check(store: fleet.Store, expected: fleet.Store, text: str = STUDY) -> None:
    assert content_of(store) == content_of(expected)
    study = fleet.Study.from_text(text)
    assert store.results(study).equals(expected.results(study))


def test_a_study_survives_its_disasters(small_store: fleet.Store, tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    for name in ("expected", "disturbed"):
        shutil.copytree(small_store.url, tmp_path / name)
    expected, store = (fleet.Store.open(tmp_path / name) for name in ("expected", "disturbed"))
    fleet.run(fleet.Study.from_text(STUDY), store=expected)
    assert disturbed(tmp_path, store, seed, disasters=2, seconds=120) > 0
    check(store, expected)


@pytest.mark.parametrize("count", [12, pytest.param(300, marks=pytest.mark.slow)])
def test_twins_on_workers_with_threads_are_as_in_one_process(count: int, tmp_path: Path) -> None:
    """Many small loads on two workers with four threads each, killed and continued: no figure is another load's."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    recorded = write_tar(shortened(unpacked(MIXED), 6000), tmp_path / "recorded.tar.zst")
    bundle = nearpage.Bundle.open(recorded)
    (tmp_path / "twins").mkdir()
    for at in range(count):
        bundle.twin(tmp_path / "twins" / f"twin {at:03}", seed=at + 1)
    expected = fleet.Store.create(tmp_path / "expected")
    taken = fleet.ingest(expected, [tmp_path / "twins"])
    assert len({of.hash for of in taken if of.is_new}) == count, taken
    shutil.copytree(expected.url, tmp_path / "disturbed")
    store = fleet.Store.open(tmp_path / "disturbed")
    text = 'models = ["linux-6.12", "nearpage"]\n'
    fleet.run(fleet.Study.from_text(text), store=expected)
    assert disturbed(tmp_path, store, seed, disasters=2 + count // 50, seconds=120 + 4 * count, text=text, threads=4) > 0
    check(store, expected, text)
    figures = {tuple(row.values()) for row in store.results().select(["model", "holds", "operations", "kept_pages_mean"]).to_pylist()}
    assert len(figures) > count, "twins differ"


@pytest.mark.slow
def test_ten_studies_survive_their_disasters(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    expected = fleet.Store.create(tmp_path / "expected")
    fleet.ingest(expected, [MIXED])
    shutil.copytree(expected.url, tmp_path / "empty")
    fleet.run(fleet.Study.from_text(STUDY), store=expected, executor=fleet.Processes())
    for at in range(10):
        folder = tmp_path / f"run{at}"
        folder.mkdir()
        shutil.copytree(tmp_path / "empty", folder / "store")
        store = fleet.Store.open(folder / "store")
        begun = time.monotonic()
        done = disturbed(folder, store, seed + at, disasters=6, seconds=600)
        assert done > 0
        check(store, expected)
        print(f"run {at}: {done} disasters, {time.monotonic() - begun:.0f} s, {store.results().num_rows} keys")
