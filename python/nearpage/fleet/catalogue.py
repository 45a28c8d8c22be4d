"""The catalogue of a store: what each entry is, and what could not be taken in."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from ..errors import StoreError

__all__ = ["COLUMNS", "FORMAT", "SCHEMA", "events_names", "is_later", "read_entry", "sorted_table", "table_of", "text"]

#: What an entry says that it is.
FORMAT = "nearpage-entry 1"

#: Seconds since 1970, by the clock of the host.
_TIME = pa.timestamp("s", "UTC")

#: The columns of the catalogue: a name, a type, and what it means.
COLUMNS: dict[str, tuple[pa.DataType, str]] = {
    "hash": (pa.string(), "SHA-256 of the unpacked content"),
    "load": (pa.string(), "what ran"),
    "machine": (pa.string(), "where, by its name or as words"),
    "kernel": (pa.string(), "the release of the kernel"),
    "arch": (pa.string(), "the architecture"),
    "nodes": (pa.int64(), "nodes of the machine"),
    "nodes_with_memory": (pa.int64(), "those of them with memory"),
    "cpus": (pa.int64(), "CPUs"),
    "memory_bytes": (pa.int64(), "bytes of memory, with its holes"),
    "page_bytes": (pa.int64(), "bytes of a page"),
    "seconds": (pa.float64(), "from the first event to the last"),
    "events": (pa.int64(), "events of the trace"),
    "lost_events": (pa.int64(), "events that the recorder lost"),
    "unsorted": (pa.int64(), "events whose time is before that of an earlier one"),
    "fidelity": (pa.float64(), "how exactly the replay predicts what the kernel logged, in percent"),
    "fidelity_model": (pa.string(), "the rules of that replay"),
    "bundle": (pa.string(), "the object with the bundle"),
    "bundle_bytes": (pa.int64(), "its size"),
    "trace_bytes": (pa.int64(), "the trace as text, unpacked"),
    "trace_packed_bytes": (pa.int64(), "the same as it was packed; null if the bundle was packed as one"),
    "events_bytes": (pa.int64(), "the size of the events in Parquet"),
    "redacted": (pa.bool_(), "whether names are hashed"),
    "version": (pa.string(), "the version of nearpage that took it in"),
    "quantities": (pa.string(), "JSON: what the kernel logged by name, [predicted, recorded, least and most of all starts]"),
    "name": (pa.string(), "what the recording calls itself"),
    "twin_of": (pa.string(), "the name of the recording that it was made up after"),
    "host": (pa.string(), "the host that recorded it"),
    "service": (pa.string(), "what the host is for"),
    "tags": (pa.string(), "JSON: words of the user, by their keys"),
    "begin": (_TIME, "when recording began"),
    "end": (_TIME, "when it ended"),
    "command": (pa.string(), "the command that was recorded, as a shell takes it"),
    "sysctls": (pa.string(), "JSON: the settings of vm.* and kernel.numa_balancing* when it began"),
}

SCHEMA = pa.schema([(name, kind) for name, (kind, _) in COLUMNS.items()])

#: What is null where it is not known.
_MAY_LACK = (
    "arch", "fidelity", "fidelity_model", "trace_bytes", "trace_packed_bytes", "quantities", "name", "twin_of", "host", "service", "tags", "begin",
    "end", "command", "sysctls",
)  # fmt: skip
_PYTHON: dict[pa.DataType, Any] = {_TIME: int, pa.string(): str, pa.int64(): int, pa.float64(): (int, float), pa.bool_(): bool}


def read_entry(content: bytes, place: str) -> dict[str, Any]:
    """An entry of the catalogue. Raises :class:`StoreError` if it is none."""
    expected = "an entry of a catalogue"
    try:
        entry = json.loads(content)
        form = entry["format"]
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{place}: is damaged, expected {expected}", place, expected) from error
    if form != FORMAT:
        what = f"{FORMAT} (a later nearpage wrote it)" if _is_of_another(form) else expected
        raise StoreError(f"{place}: has format {form!r}, expected {what}", place, what)
    for name, (kind, _) in COLUMNS.items():
        value = entry.get(name)
        if value is None and name not in _MAY_LACK:
            raise StoreError(f"{place}: {name} is not there, expected {kind}", place, str(kind))
        if value is not None and not _is_of(kind, value):
            raise StoreError(f"{place}: {name} is {value!r}, expected {kind}", place, str(kind))
    if entry.get("hash") != place.rpartition("/")[2].partition(".")[0]:
        raise StoreError(f"{place}: is the entry {entry.get('hash')!r}, expected that of its name", place, expected)
    return dict(entry)


def _is_of(kind: pa.DataType, value: object) -> bool:
    if not isinstance(value, _PYTHON[kind]) or isinstance(value, bool) != (kind == pa.bool_()):
        return False
    if isinstance(value, int):
        return -(1 << 63) <= value < 1 << 63
    # Half of a surrogate pair is no text.
    return not isinstance(value, str) or value == text(value)


def events_names(hash: str) -> tuple[str, str]:
    """The object with the events of an entry, as Hive has it, and where it was in stores of earlier versions."""
    return f"events/entry={hash}/events.parquet", f"entries/{hash}/events.parquet"


def is_later(content: bytes) -> bool:
    """Whether an entry is of a later version."""
    try:
        form = json.loads(content)["format"]
    except (ValueError, KeyError, TypeError):
        return False
    return _is_of_another(form)


def _is_of_another(form: object) -> bool:
    return str(form).startswith("nearpage-entry ") and form != FORMAT


def text(given: str) -> str:
    """A text that can be written: bytes of a name that are no UTF-8 are escaped, and so is half of a surrogate pair."""
    try:
        given.encode()
    except UnicodeEncodeError:
        return given.encode(errors="surrogateescape" if _is_of_bytes(given) else "backslashreplace").decode(errors="backslashreplace")
    return given


def _is_of_bytes(given: str) -> bool:
    return all(not 0xD800 <= ord(of) < 0xDC80 and not 0xDD00 <= ord(of) < 0xE000 for of in given)


def table_of(entries: Iterable[dict[str, Any]]) -> pa.Table:
    """Entries as a table."""
    rows = list(entries)
    return pa.table({field.name: pa.array([of.get(field.name) for of in rows], field.type) for field in SCHEMA}, SCHEMA)


def sorted_table(tables: list[pa.Table]) -> pa.Table:
    """Tables of entries as one, by load, kernel and hash."""
    return pa.concat_tables(tables).sort_by([("load", "ascending"), ("kernel", "ascending"), ("hash", "ascending")]).combine_chunks()
