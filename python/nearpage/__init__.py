"""The NUMA page allocator of a kernel, as software: machines, recordings, replays, lab and memory.

>>> import nearpage
>>> machine = nearpage.Machine.from_short_form("--numa 2G,cpus=0-1 --numa 2G,cpus=2-3")
>>> machine.fallback()
{0: [0, 1], 1: [1, 0]}

Sizes are in pages unless a name says otherwise. Tables are handed over by the Arrow C data interface, without a copy.
"""

from __future__ import annotations

import os
from typing import Callable, Iterable, Union

from . import lab
from ._nearpage import (
    BoundAnswer,
    Bundle,
    Diagnosis,
    Events,
    Fidelity,
    Machine,
    Memory,
    Node,
    Pages,
    Report,
    Rules,
    Table,
    __version__,
    doctor,
    explain_log,
)
from ._nearpage import compare_rules as _compare_rules
from ._nearpage import models as _models
from ._nearpage import settings as _settings
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
    "BoundAnswer",
    "Bundle",
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
    "NearpageError",
    "Node",
    "Pages",
    "ReplayError",
    "Report",
    "Rules",
    "RunError",
    "StoreError",
    "StudyError",
    "Table",
    "__version__",
    "compare_rules",
    "doctor",
    "explain_log",
    "lab",
    "models",
    "settings",
]


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
    return _compare_rules([os.fspath(path) for path in bundles], list(models), threads=threads, progress=progress)
