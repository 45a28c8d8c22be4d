"""One task: what is measured."""

from __future__ import annotations

import json
from typing import Any

from .. import _nearpage
from ..errors import StoreError
from .results import FIGURES, FIRST, sealed
from .store import Store
from .study import Task

__all__ = ["Prepared", "columns_of", "compute"]


class Prepared:
    """The bundle that was measured last, looked through: tasks of one entry come one after the other. A thread has its own."""

    def __init__(self) -> None:
        self._of: tuple[str, str] | None = None
        self._prepared: _nearpage.Prepared | None = None

    def get(self, store: Store, entry: str) -> _nearpage.Prepared:
        if self._of != (store.url, entry) or self._prepared is None:
            # One at a time: memory is that of one trace.
            self._of, self._prepared = None, None
            with store.local_bundle(entry) as path:
                self._prepared = _nearpage.Prepared.open(path)
            self._of = (store.url, entry)
        return self._prepared


def compute(store: Store, task: Task, prepared: Prepared) -> bytes:
    """Computes a task: its result, as it is kept."""
    check_version(task)
    figures: dict[str, Any] = {}
    if task.measure == "rules":
        machine = json.loads(task.what_if) if task.what_if else {}
        kinds = [kind for kind in ("name", "short_form", "numactl") if kind in machine]
        found = prepared.get(store, task.entry).measure(
            task.model,
            json.loads(task.settings),
            machine=_nearpage.what_if_machine(kinds[0], machine[kinds[0]]) if kinds else None,
            cpus=machine.get("cpus"),
            map_cpus=machine.get("map_cpus", "socket"),
            repeat=machine.get("repeat", 1),
            seed=task.seed,
        )
        columns = columns_of(found)
        figures = {name: columns[name] for name in FIGURES}
    return sealed(task, figures)


def columns_of(found: dict[str, Any]) -> dict[str, Any]:
    """The columns of what was measured, of both passes."""
    first = _flat(found.pop("first_pass"))
    return _flat(found) | {FIRST + name: value for name, value in first.items()}


def _flat(found: dict[str, Any]) -> dict[str, Any]:
    """Figures with a column for each cause of holds. Direct ones are told by order."""
    causes = found.pop("holds_by_cause")
    return found | {f"holds_{cause}": sum(of.values()) if isinstance(of, dict) else of for cause, of in causes.items()}


def check_version(task: Task) -> None:
    """Refuses a task of another version: its result would not be what its key says."""
    own = (_nearpage.__version__, _nearpage.model_version(task.model))
    if own != (task.version, task.model_version):
        expected = f"{task.version} with model version {task.model_version} on every worker"
        message = f"this worker has nearpage {own[0]} with model version {own[1]}, expected {expected}"
        raise StoreError(message, None, expected)
