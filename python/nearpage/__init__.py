"""The NUMA page allocator of a kernel, as software: machines, recordings, replays, lab and memory.

>>> import nearpage
>>> machine = nearpage.Machine.from_short_form("--numa 2G,cpus=0-1 --numa 2G,cpus=2-3")
>>> machine.fallback()
{0: [0, 1], 1: [1, 0]}

Sizes are in pages unless a name says otherwise. Tables are handed over by the Arrow C data interface, without a copy.
"""

from __future__ import annotations

import os
from typing import Any, Callable, Iterable, Union

from . import lab
from ._nearpage import (
    BenchReport,
    BoundAnswer,
    Bundle,
    Cache,
    Diagnosis,
    Events,
    Fidelity,
    Machine,
    Memory,
    Moment,
    Node,
    Object,
    Pages,
    Profile,
    Report,
    Rules,
    Table,
    Verification,
    __version__,
    doctor,
    explain_log,
    tape,
    top,
)
from ._nearpage import bench as _bench
from ._nearpage import compare_rules as _compare_rules
from ._nearpage import models as _models
from ._nearpage import record as _record
from ._nearpage import settings as _settings
from ._nearpage import verify as _verify
from .errors import (
    AllocationError,
    ArgumentError,
    InternalError,
    Interrupted,
    LabError,
    LogError,
    MachineError,
    NearpageError,
    ReplayError,
    RunError,
    StoreError,
    StudyError,
)

__all__ = [
    "AllocationError",
    "ArgumentError",
    "BenchReport",
    "BoundAnswer",
    "Bundle",
    "Cache",
    "Diagnosis",
    "Events",
    "Fidelity",
    "InternalError",
    "Interrupted",
    "LabError",
    "LogError",
    "Machine",
    "MachineError",
    "Memory",
    "Moment",
    "NearpageError",
    "Node",
    "Object",
    "Pages",
    "Profile",
    "ReplayError",
    "Report",
    "Rules",
    "RunError",
    "StoreError",
    "StudyError",
    "Table",
    "Verification",
    "__version__",
    "bench",
    "compare_rules",
    "doctor",
    "explain_log",
    "lab",
    "models",
    "record",
    "settings",
    "tape",
    "top",
    "verify",
]


def _each(argument: str, values: Iterable[Any], accepted: str) -> list[Any]:
    """A list of what was given. One text is not its letters."""
    if isinstance(values, (str, bytes, os.PathLike)):
        raise ArgumentError(f"{argument}={values!r}, expected {accepted}", argument, accepted)
    return list(values)


def models() -> dict[str, str]:
    """The names of all sets of rules, each with a line about it."""
    return dict(_models())


def settings() -> dict[str, str]:
    """The settings that ``Bundle.replay`` and ``Bundle.sweep`` take, each with its values and its meaning."""
    return {key: f"{values}: {meaning}" for key, values, meaning in _settings()}


def compare_rules(
    bundles: Iterable[Union[str, os.PathLike[str]]],
    models: Iterable[str] = ("nearpage",),
    *,
    threads: int | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Rules:
    """Compares sets of rules over bundles with Linux 6.18, as ``nearpage replay rules`` does.

    Each trace is played twice under each set of rules; the figures are those of the second pass. ``threads`` is how many
    bundles are replayed at once, as many as this process may use by default. ``progress`` is called with bytes read and
    bytes to read.
    """
    paths = [os.fspath(path) for path in _each("bundles", bundles, "a list of paths")]
    return _compare_rules(paths, _each("models", models, "a list of models"), threads=threads, progress=progress)


def verify(
    paths: Iterable[Union[str, os.PathLike[str]]], model: str = "auto", *, progress: Callable[[int, int], object] | None = None
) -> Verification:
    """Predicts what the kernels of recordings printed, and compares, as ``nearpage verify`` does. What cannot be read is told in the
    result. ``progress`` is called with recordings done and to do."""
    return _verify([os.fspath(path) for path in _each("paths", paths, "a list of paths")], model, progress=progress)


def bench(
    benches: Iterable[str] = (),
    *,
    quick: bool = False,
    bytes: int | None = None,
    rounds: int | None = None,
    threads: int | None = None,
    seed: int | None = None,
    models: Iterable[str] = (),
    progress: Callable[[int, int], object] | None = None,
) -> BenchReport:
    """Measures what pages cost on this machine's real memory, as ``nearpage bench`` does: ``pairs``, ``random``, ``replace``, ``cross``,
    ``orders``, ``bulk``, ``tails``, ``mixed``, ``fragmentation``, ``order9``, ``zonelist``, ``pagelock``, ``slab``; the usual ones by default.

    ``bytes`` is memory a node, ``quick`` shows that it works and measures little. ``progress`` is called with steps of the benchmark
    that is under way.
    """
    benches, models = _each("benches", benches, "a list of benches"), _each("models", models, "a list of models")
    return _bench(benches, quick=quick, bytes=bytes, rounds=rounds, threads=threads, seed=seed, models=models, progress=progress)


def record(
    command: Iterable[str],
    output: Union[str, os.PathLike[str]],
    *,
    slab: bool = False,
    lock: bool = False,
    seconds: float | None = None,
) -> dict[str, object]:
    """Records what the page allocator of this machine does while a command runs (an empty one: for some seconds), into a new bundle, as
    ``nearpage record`` does: root and tracefs are needed. Answers its JSON.

    Ctrl-C ends the recording; the bundle has what happened until then. Raises :class:`MachineError` where it is not possible.
    """
    words = _each("command", command, "a list of words, such as ['make', '-j8']")
    return _record(words, os.fspath(output), slab=slab, lock=lock, seconds=seconds)
