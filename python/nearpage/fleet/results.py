"""Results as they are kept: their names, their columns, and what is read of them.

A result is a JSON object with sorted keys and a checksum. Nothing in it depends on when or where it was computed, so that a key
computed twice is the same twice, byte for byte.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from .. import _nearpage
from .logged import LOGGED, error_column, errors_of
from .study import Task, canonical

__all__ = ["CAUSES", "COLUMNS", "FIGURES", "FIRST", "OF_ENTRY", "is_of_this_version", "name_of", "read_result", "sealed", "table_of"]

_FORMAT = "nearpage-result 1"
#: Causes of holds.
CAUSES = ("refill", "drain", "direct", "foreign", "upkeep")

_TEXT, _COUNT, _REAL = pa.string(), pa.int64(), pa.float64()
#: The columns of the table of results.
COLUMNS: dict[str, pa.DataType] = {
    **dict.fromkeys(("key", "entry", "load", "machine", "kernel", "model", "settings", "what_if"), _TEXT),
    "seed": _COUNT,
    "version": _TEXT,
    "model_version": _TEXT,
    "holds": _COUNT,
    **{f"holds_{cause}": _COUNT for cause in CAUSES},
    **dict.fromkeys(("foreign_takes", "operations", "longest_hold_operations"), _COUNT),
    "kept_pages_mean": _REAL,
    "kept_pages_max": _COUNT,
    "whole_mean": _REAL,
    **dict.fromkeys(("whole_end", "remote_pages", "failed", "requests", "events"), _COUNT),
    "seconds": _REAL,
    "measure": _TEXT,
}
#: Before the names of figures of the first pass.
FIRST = "first_"
_FIRST = [name for name in COLUMNS if COLUMNS[name] in (_COUNT, _REAL) and name not in ("seed", "requests", "events", "seconds")]
COLUMNS |= {
    # Where a row comes from: the rules that "auto" found, and the start of the trace.
    "rules": _TEXT,
    "start": _TEXT,
    # What the recording's own kernel logged, and how the replay under its rules predicts it.
    "fidelity": _REAL,
    **{error_column(figure): _REAL for figure in LOGGED},
    **dict.fromkeys(("host", "service", "twin_of", "name"), _TEXT),
    **{FIRST + name: COLUMNS[name] for name in _FIRST},
}
_OF_TASK = ("entry", "model", "settings", "what_if", "seed", "measure", "version", "model_version")
#: What the catalogue says about a result.
OF_ENTRY = ("load", "machine", "kernel", "events", "seconds", "fidelity", "host", "service", "twin_of", "name")
_ERRORS = [error_column(figure) for figure in LOGGED]
#: What is measured.
FIGURES = [name for name in COLUMNS if name not in ("key", "start", *_OF_TASK, *OF_ENTRY, *_ERRORS)]


def name_of(key: str) -> str:
    """The name of the object with the result of a key."""
    return f"results/{key[:2]}/{key}.json"


def sealed(task: Task, figures: dict[str, Any]) -> bytes:
    """The result of a task, as it is kept."""
    return _with_check({"format": _FORMAT, "key": task.key, **vars(task), "figures": figures})


def _with_check(result: dict[str, Any]) -> bytes:
    text = canonical(result)
    return canonical({**result, "check": hashlib.sha256(text.encode()).hexdigest()[:16]}).encode()


def read_result(content: bytes, key: str) -> dict[str, Any] | None:
    """A result, or None if it is damaged or not that of its name: then it is computed again."""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        result = json.loads(content)
        check = result.pop("check")
        if result["format"] == _FORMAT and _with_check(result) == canonical({**result, "check": check}).encode():
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
        errors = {error_column(figure): percent for figure, percent in errors_of(entry.get("quantities")).items()}
        start = {"start": "likely" if result["seed"] == 0 else "drawn"}
        rows.append({**{name: entry.get(name) for name in OF_ENTRY}, **errors, **start, **result["figures"], **result})
    return pa.table({name: pa.array([row.get(name) for row in rows], kind) for name, kind in COLUMNS.items()})
