"""What ``nearpage.fleet`` costs: ``python python/tests/measure_fleet.py [parquet|tasks|workers|memory|keys]…``, all by default.

``parquet``: the events of public bundles, in Parquet and as packed text: sizes, and CPU time of reading to Arrow.
``tasks``: 100 000 empty tasks on a local Dask cluster of two workers, from claim to result.
``workers``: two workers beside one, and two plain processes beside one, in pairs.
``memory``: the most memory of a worker with a trace once, 4 times and 16 times as long.
``keys``: CPU time of a key, by what it is made of.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
from fleet_help import BUNDLES, MIXED, unpacked, write_tar

import nearpage
import nearpage.fleet as fleet
from nearpage import _nearpage

ROUNDS = 9
NAMES = ("q61-n3-asym", "q612-arm64-n3", "q612-n2-mixed", "q612-n4-asym")


def memory_folder() -> str | None:
    """Where the disk is not what is measured."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def cpu_seconds(work: object) -> float:
    begun = time.process_time()
    work()  # type: ignore[operator]
    return time.process_time() - begun


def store_of(folder: str, bundles: list[Path]) -> fleet.Store:
    store = fleet.Store.create(Path(folder) / "store")
    fleet.ingest(store, bundles)
    return store


def parquet() -> None:
    pa.set_cpu_count(1)
    with tempfile.TemporaryDirectory(dir=memory_folder()) as folder:
        store = store_of(folder, [BUNDLES / f"{name}.tar.zst" for name in NAMES])
        for entry in store.entries().to_pylist():
            with store.local_bundle(entry["hash"]) as path:
                text = len(pa.compress(unpacked(path)["trace.txt"], pa.Codec("zstd", 19), asbytes=True))
            bundle, events = store.bundle(entry["hash"]), store.events(entry["hash"])
            pairs = []
            for _ in range(ROUNDS):
                of_text = cpu_seconds(lambda: sum(map(len, bundle.events())))
                pairs.append((of_text, cpu_seconds(lambda: sum(batch.num_rows for batch in events.batches()))))
            ratio = statistics.median(of_text / of_parquet for of_text, of_parquet in pairs)
            of_text, of_parquet = (statistics.median(side) for side in zip(*pairs))
            print(
                f"{entry['load']}: {entry['events']} events; text {text} bytes (zstd -19), Parquet {entry['events_bytes']} "
                f"({entry['events_bytes'] / text:.2f}); CPU time to Arrow {of_text:.3f} s, {of_parquet:.4f} s ({ratio:.1f} times)"
            )


def tasks() -> None:
    count = 100_000
    with tempfile.TemporaryDirectory(dir=memory_folder()) as folder:
        store = store_of(folder, [MIXED])
        study = fleet.Study(measure="nothing", seeds=range(count))
        for chunk in (None, 1):
            shutil.rmtree(Path(store.url) / "results", ignore_errors=True)
            store = fleet.Store.open(store.url)
            with fleet.Dask(workers=2) as executor:
                begun = time.monotonic()
                fleet.run(study, store=store, executor=executor, chunk=chunk)
                seconds = time.monotonic() - begun
            print(f"{count} empty tasks, {'in chunks' if chunk is None else 'each by itself'}: {seconds:.0f} s, {1e3 * seconds / count:.2f} ms a task")


_SPIN = "import time\nbegun = time.process_time()\nwhile time.process_time() - begun < 1.5: pass"


def spin(count: int) -> float:
    begun = time.monotonic()
    running = [subprocess.Popen([sys.executable, "-c", _SPIN]) for _ in range(count)]
    for process in running:
        process.wait()
    return time.monotonic() - begun


def workers() -> None:
    with tempfile.TemporaryDirectory(dir=memory_folder()) as folder:
        store = store_of(folder, [BUNDLES / f"{name}.tar.zst" for name in NAMES])
        study = fleet.Study(models=["linux-6.18", "nearpage"], settings=[{"pcp.high_max": high} for high in range(500, 4500, 500)])
        # Workers that have begun: how long Python takes to start is no question of scaling.
        with fleet.Processes(1) as one, fleet.Processes(2) as two:
            pairs = []
            for _ in range(ROUNDS):
                seconds = []
                for executor in (one, two):
                    shutil.rmtree(Path(store.url) / "results", ignore_errors=True)
                    fresh = fleet.Store.open(store.url)
                    begun = time.monotonic()
                    fleet.run(study, store=fresh, executor=_Kept(executor))
                    seconds.append(time.monotonic() - begun)
                # Two processes do twice the work of one.
                pairs.append((seconds[0] / seconds[1], 2 * spin(1) / spin(2)))
        speedup, limit = (statistics.median(side) for side in zip(*pairs))
        print(f"two workers beside one, {ROUNDS} pairs: {speedup:.2f} times; two plain processes beside one: {limit:.2f} times")


class _Kept:
    """An executor that stays open after a run."""

    def __init__(self, executor: fleet.Processes) -> None:
        self._executor = executor
        self._max_workers = executor.workers

    def submit(self, call: object, *arguments: object) -> object:
        return self._executor.submit(call, *arguments)  # type: ignore[arg-type]


def longer(times: int, path: Path) -> Path:
    """A bundle whose window holds the same events several times, one after the other."""
    files = unpacked(MIXED)
    lines = files["trace.txt"].splitlines(keepends=True)
    begin = next(at for at, line in enumerate(lines) if b"nearpage: cmd begin" in line)
    end = next(at for at, line in enumerate(lines) if b"nearpage: after begin" in line)
    whole = lines[:begin]

    def shifted(line: bytes, seconds: float) -> bytes:
        stamp = next((word for word in line.split(b": ", 1)[0].split() if b"." in word and word.replace(b".", b"").isdigit()), None)
        return line.replace(stamp, b"%.6f" % (float(stamp) + seconds), 1) if stamp else line

    for at in range(times):
        whole += [shifted(line, 12.0 * at) for line in lines[begin:end] if at == 0 or b"nearpage: " not in line]
    whole += [shifted(line, 12.0 * (times - 1)) for line in lines[end:]]
    return write_tar({**files, "trace.txt": b"".join(whole)}, path)


_PEAK = """
import resource, sys
import nearpage.fleet as fleet
store = fleet.Store.open(sys.argv[1])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
fleet.run(fleet.Study(entries=[sys.argv[2]], models=["linux-6.18", "nearpage"]), store=store)
print(before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def memory() -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = fleet.Store.create(Path(folder) / "store")
        for times in (1, 4, 16):
            [one] = fleet.ingest(store, [longer(times, Path(folder) / f"{times}.tar.zst")])
            if one.reason:
                print(f"{times} times as long: {one.reason}")
                continue
            entry = store.entry(str(one.hash))
            told = subprocess.run([sys.executable, "-c", _PEAK, store.url, entry["hash"]], capture_output=True, text=True, check=True, cwd=folder)
            before, most = (int(word) // 1024 for word in told.stdout.split())
            print(f"{entry['events']} events: a worker has {most} MiB at most, {before} of them before its first trace")


def keys() -> None:
    for name in NAMES:
        path = BUNDLES / f"{name}.tar.zst"
        prepared = _nearpage.Prepared.open(path)
        opened = statistics.median(cpu_all(lambda: _nearpage.Prepared.open(path)) for _ in range(5))
        keys = {model: statistics.median(cpu_all(lambda: prepared.measure(model, {})) for _ in range(5)) for model in ("linux-6.18", "nearpage")}
        read = statistics.median(cpu_all(lambda: _nearpage._read_events(nearpage.Bundle.open(path))) for _ in range(5))
        of_keys = ", ".join(f"{model} {seconds:.3f} s" for model, seconds in keys.items())
        print(f"{name}: CPU time to prepare {opened:.3f} s (to read its text {read:.3f} s), of a key {of_keys}")


def cpu_all(work: object) -> float:
    """CPU time of all threads."""
    return cpu_seconds(work)


def main() -> None:
    every = {"parquet": parquet, "keys": keys, "memory": memory, "workers": workers, "tasks": tasks}
    for name in sys.argv[1:] or every:
        print(f"{name}, {os.cpu_count()} CPUs:", flush=True)
        every[name]()


if __name__ == "__main__":
    main()
