"""SQL over a store, by DuckDB: views ``entries``, ``results``, ``events`` and ``fidelity``.

============  ==========================================================================================================
view          a row
============  ==========================================================================================================
``entries``   an entry: the columns of the catalogue
``results``   a finished key: the columns of :mod:`nearpage.fleet`
``fidelity``  a quantity that an entry's kernel logged: ``entry``, ``load``, ``kernel``, ``host``, ``quantity``, ``predicted``, ``recorded``,
              ``error_percent``, and the least and the most that any start comes to (``least``, ``most``)
``events``    an event: ``entry``, ``time_ns`` (nanoseconds of the recording's clock, as a whole number), and the columns of
              :meth:`nearpage.Bundle.events` but for ``time``
============  ==========================================================================================================

Columns may follow these; what is here stays. Only the files of events that a query needs are read, and only its columns.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ..errors import ArgumentError
from .parquet import COLUMNS

if TYPE_CHECKING:
    from .store import Store

__all__ = ["query"]

_TEXT, _COUNT, _REAL = pa.string(), pa.int64(), pa.float64()
_FIDELITY = pa.schema(
    [("entry", _TEXT), ("load", _TEXT), ("kernel", _TEXT), ("host", _TEXT), ("quantity", _TEXT), ("predicted", _COUNT), ("recorded", _COUNT), ("error_percent", _REAL),
     ("least", _COUNT), ("most", _COUNT)]
)  # fmt: skip


def query(store: Store, statement: str) -> pa.Table:
    """What a statement answers, as an Arrow table. Raises :class:`nearpage.ArgumentError` for what DuckDB refuses."""
    try:
        import duckdb
    except ImportError as error:
        accepted = "the package (pip install 'nearpage[sql]')"
        raise ArgumentError(f"duckdb is not installed, expected {accepted}", "duckdb", accepted) from error
    accepted = "SQL of DuckDB over entries, results, events and fidelity"
    connection = duckdb.connect()
    try:
        entries = store.entries()
        connection.register("entries", entries)
        connection.register("fidelity", fidelity_of(entries))
        connection.register("results", store.results())
        # It looks into each file.
        if "events" in statement.lower():
            _register_events(connection, store, entries.column("hash").to_pylist())
        answer = connection.sql(statement)
        if answer is None:
            raise ArgumentError(f"a statement without an answer, expected {accepted}", "sql", accepted)
        return answer.to_arrow_table()
    except duckdb.Error as error:
        raise ArgumentError(f"{error}, expected {accepted}", "sql", accepted) from error
    finally:
        connection.close()


def _register_events(connection: Any, store: Store, hashes: list[str]) -> None:
    sources = [(hash, place) for hash in hashes if (place := store.events_place(hash)) is not None]
    columns = ", ".join(f'"{name}"' for name in COLUMNS if name != "time")
    plain = {name: _TEXT if pa.types.is_dictionary(kind) else kind for name, kind in COLUMNS.items()} | {"time": _COUNT}
    if not sources:
        connection.register("events", pa.schema([("entry", _TEXT), ("time_ns", _COUNT), *((name, kind) for name, kind in plain.items() if name != "time")]).empty_table())
        return
    # Files of earlier versions lack columns.
    connection.register("no_events", pa.schema([*plain.items(), ("filename", _TEXT)]).empty_table())
    if "://" in sources[0][1]:
        connection.register_filesystem(store.files.fs)  # type: ignore[attr-defined]
    connection.register("files_of_entries", pa.table({"entry": [hash for hash, _ in sources], "file": [place for _, place in sources]}))
    quoted = ", ".join("'" + place.replace("'", "''") + "'" for _, place in sources)
    # Parquet keeps durations as whole numbers, with their unit beside them: DuckDB's own intervals would lose nanoseconds.
    connection.execute(
        f"create view events as select files.entry, \"time\"::bigint as time_ns, {columns} from (select * from read_parquet([{quoted}], "
        "filename = true, hive_partitioning = false, union_by_name = true) union all by name select * from no_events) as of_file join files_of_entries as files on files.file = of_file.filename"
    )


def fidelity_of(entries: pa.Table) -> pa.Table:
    """What each entry's kernel logged, beside what the replay under its rules predicts of it."""
    rows = []
    for entry in entries.select(["hash", "load", "kernel", "host", "quantities"]).to_pylist():
        for quantity, (predicted, recorded, least, most) in sorted(json.loads(entry["quantities"] or "{}").items()):
            rows.append(
                {
                    "entry": entry["hash"], "load": entry["load"], "kernel": entry["kernel"], "host": entry["host"], "quantity": quantity, "predicted": predicted,
                    "recorded": recorded, "error_percent": 100.0 * (predicted - recorded) / recorded if recorded else None, "least": least, "most": most,
                }
            )  # fmt: skip
    return pa.Table.from_pylist(rows, _FIDELITY)
