"""One task: what is measured, and the result as it is kept.

A result is a JSON object with sorted keys and a checksum. Nothing in it depends on when or where it was computed, so that a key
computed twice is the same twice, byte for byte.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from .. import _nearpage
from ..errors import StoreError
from .study import Task, canonical

if TYPE_CHECKING:
    from .store import Store

__all__ = ["COLUMNS", "OF_ENTRY", "Prepared", "compute", "is_of_this_version", "name_of", "read_result", "table_of"]

_FORMAT = "nearpage-result 1"
_CAUSES = ("refill", "drain", "direct", "foreign", "upkeep")

_TEXT, _COUNT, _REAL = pa.string(), pa.int64(), pa.float64()
#: The columns of the table of results.
COLUMNS: dict[str, pa.DataType] = {
    **dict.fromkeys(("key", "entry", "load", "machine", "kernel", "model", "settings", "what_if"), _TEXT),
    "seed": _COUNT,
    "version": _TEXT,
    "model_version": _TEXT,
    "holds": _COUNT,
    **{f"holds_{cause}": _COUNT for cause in _CAUSES},
    **dict.fromkeys(("foreign_takes", "operations", "longest_hold_operations"), _COUNT),
    "kept_pages_mean": _REAL,
    "kept_pages_max": _COUNT,
    "whole_mean": _REAL,
    **dict.fromkeys(("whole_end", "remote_pages", "failed", "requests", "events"), _COUNT),
    "seconds": _REAL,
    "measure": _TEXT,
}
_OF_TASK = ("entry", "model", "settings", "what_if", "seed", "measure", "version", "model_version")
#: What the catalogue says about a result.
OF_ENTRY = ("load", "machine", "kernel", "events", "seconds")
_FIGURES = [name for name in COLUMNS if name not in ("key", *_OF_TASK, *OF_ENTRY)]


class Prepared:
    """The bundle that this process measured last, looked through: tasks of one entry come one after the other."""

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
        causes = found["holds_by_cause"]
        found.update({f"holds_{cause}": causes[cause] for cause in _CAUSES if cause != "direct"})
        found["holds_direct"] = sum(causes["direct"].values())
        figures = {name: found[name] for name in _FIGURES}
    return _sealed({"format": _FORMAT, "key": task.key, **vars(task), "figures": figures})


def check_version(task: Task) -> None:
    """Refuses a task of another version: its result would not be what its key says."""
    own = (_nearpage.__version__, _nearpage.model_version(task.model))
    if own != (task.version, task.model_version):
        expected = f"{task.version} with model version {task.model_version} on every worker"
        message = f"this worker has nearpage {own[0]} with model version {own[1]}, expected {expected}"
        raise StoreError(message, None, expected)


def name_of(key: str) -> str:
    """The name of the object with the result of a key."""
    return f"results/{key[:2]}/{key}.json"


def _sealed(result: dict[str, Any]) -> bytes:
    text = canonical(result)
    return canonical({**result, "check": hashlib.sha256(text.encode()).hexdigest()[:16]}).encode()


def read_result(content: bytes, key: str) -> dict[str, Any] | None:
    """A result, or None if it is damaged or not that of its name: then it is computed again."""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        result = json.loads(content)
        check = result.pop("check")
        if result["format"] == _FORMAT and _sealed(result) == canonical({**result, "check": check}).encode():
            task = Task(**{name: result[name] for name in _OF_TASK})
            if task.key == result["key"] == key:
                return dict(result)
    return None


def is_of_this_version(result: dict[str, Any], models: dict[str, str]) -> bool:
    """Whether a result is of the code that runs; ``models`` keeps what was asked for before."""
    model = result["model"]
    if model not in models:
        try:
            models[model] = _nearpage.model_version(model)
        except ValueError:
            # A model that this version does not have.
            models[model] = ""
    return bool((result["version"], result["model_version"]) == (_nearpage.__version__, models[model]))


def table_of(results: Iterable[dict[str, Any]], entries: dict[str, dict[str, Any]]) -> pa.Table:
    """Results as a table, with what the catalogue says about their entries."""
    rows = []
    for result in results:
        entry = entries.get(result["entry"], {})
        rows.append({**{name: entry.get(name) for name in OF_ENTRY}, **result["figures"], **result})
    return pa.table({name: pa.array([row.get(name) for row in rows], kind) for name, kind in COLUMNS.items()})
