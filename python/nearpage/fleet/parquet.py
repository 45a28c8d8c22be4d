"""Events in Parquet: the columns of :meth:`nearpage.Bundle.events`, each in the encoding that suits it.

Times and frames are written as differences and as streams of bytes; texts, tasks and orders by dictionaries; pages are packed by
zstd. Rows are read and written a group at a time, so that memory does not grow with the trace.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Union

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..errors import ArgumentError, StoreError

__all__ = ["COLUMNS", "EventFile", "write_events"]

#: Events of a group of rows.
ROWS = 1 << 20

_TEXT = pa.dictionary(pa.int32(), pa.string())
COLUMNS: dict[str, pa.DataType] = {
    "time": pa.duration("ns"),
    "cpu": pa.uint32(),
    "event": _TEXT,
    "pfn": pa.uint64(),
    "order": pa.uint8(),
    "flags": _TEXT,
    "type": _TEXT,
    "pid": pa.uint32(),
    "comm": _TEXT,
    "pages": pa.uint64(),
    "text": _TEXT,
}
#: Those that every event has. Readers need not look for nulls in them, which takes a tenth of their time and more.
_ALWAYS = ("time", "cpu", "event", "pid", "comm")

_ENCODINGS = {"time": "DELTA_BINARY_PACKED", "pfn": "BYTE_STREAM_SPLIT"}
_LEVEL = 9


def write_events(path: Path, tables: Iterable[Any], metadata: dict[str, str] | None = None) -> int:
    """Writes events, tables of which the columns are :data:`COLUMNS`: how many there were."""
    fields = [pa.field(name, kind, nullable=name not in _ALWAYS) for name, kind in COLUMNS.items()]
    schema = pa.schema(fields, metadata={"nearpage": "events 1", **(metadata or {})})
    count = 0
    with pq.ParquetWriter(
        os.fspath(path),
        schema,
        compression="zstd",
        compression_level=_LEVEL,
        use_dictionary=[name for name in COLUMNS if name not in _ENCODINGS],
        column_encoding=_ENCODINGS,
        # The reader of Parquet takes most flipped bits for other values.
        write_page_checksum=True,
    ) as writer:
        waiting: list[pa.Table] = []
        rows = 0

        def flush() -> None:
            nonlocal rows
            if waiting:
                writer.write_table(pa.concat_tables(waiting).unify_dictionaries(), row_group_size=ROWS)
            waiting.clear()
            rows = 0

        for table in tables:
            table = pa.table(table).cast(schema)
            count += table.num_rows
            rows += table.num_rows
            waiting.append(table)
            if rows >= ROWS:
                flush()
        flush()
    return count


class EventFile:
    """Events of an entry. It is an Arrow stream, as :class:`nearpage.Events` is: pyarrow, pandas, polars and DuckDB read it."""

    def __init__(self, source: Union[str, os.PathLike[str], BinaryIO], place: str) -> None:
        self.place = place
        with self._judged():
            # Headers of pages and the footer have no checksums, and pyarrow believes both: see what is checked of what it reads.
            self._file = pq.ParquetFile(source, page_checksum_verification=True)
        names = self._file.schema_arrow.names
        kinds = {name: self._file.schema_arrow.field(name).type for name in names}
        wrong = [name for name, kind in COLUMNS.items() if kinds.get(name) != kind]
        if wrong:
            expected = ", ".join(f"{name} ({kind})" for name, kind in COLUMNS.items() if name in wrong)
            raise StoreError(f"{place}: is no table of events, expected the columns {expected}", place, expected)

    @contextlib.contextmanager
    def _judged(self) -> Iterator[None]:
        try:
            yield
        # What a damaged file raises is of many kinds: ArrowInvalid is a ValueError, others are OSError and NotImplementedError.
        except (pa.ArrowException, OSError, ValueError, NotImplementedError, MemoryError, KeyError) as error:
            message = f"{self.place}: is damaged: {error}, expected a Parquet file of events"
            raise StoreError(message, self.place, "a Parquet file of events") from error

    def __len__(self) -> int:
        return int(self._file.metadata.num_rows)

    def batches(self, columns: list[str] | None = None, rows: int = 1 << 15) -> Iterator[pa.RecordBatch]:
        """Batches of up to so many rows, by default as many as caches hold; memory does not grow with the trace."""
        if rows < 1:
            raise ArgumentError(f"rows={rows}, expected 1 or more", "rows", "1 or more")
        # More than there are need no more room.
        rows = min(rows, max(len(self), 1))
        self._check(columns)
        with self._judged():
            read = 0
            for batch in self._file.iter_batches(batch_size=rows, columns=columns, use_threads=False):
                for column in batch.columns:
                    _check_dictionary(column)
                read += batch.num_rows
                yield batch
            self._check_rows(read, columns)

    def _check(self, columns: list[str] | None) -> None:
        """The reader of Parquet leaves out columns that there are not, without a word."""
        for name in columns or ():
            if name not in COLUMNS:
                expected = f"some of {', '.join(COLUMNS)}"
                raise ArgumentError(f"columns: there is no column {name!r}, expected {expected}", "columns", expected)

    def _check_rows(self, rows: int, columns: list[str] | None) -> None:
        """Of no columns there are no rows."""
        if (columns is None or columns) and rows != len(self):
            raise pa.ArrowInvalid(f"it gives {rows} rows, and says that it has {len(self)}")

    def to_arrow(self, columns: list[str] | None = None) -> pa.Table:
        self._check(columns)
        with self._judged():
            # Not all at once: Ctrl-C is heard between groups.
            groups = [self._file.read_row_group(at, columns=columns) for at in range(self._file.num_row_groups)]
            table = pa.concat_tables(groups) if groups else self._file.read(columns=columns)
            for column in table.columns:
                for chunk in column.chunks:
                    _check_dictionary(chunk)
            self._check_rows(table.num_rows, columns)
            return table

    def to_pandas(self, columns: list[str] | None = None) -> Any:
        return self.to_arrow(columns).to_pandas()

    def to_polars(self, columns: list[str] | None = None) -> Any:
        import polars

        return polars.from_arrow(self.to_arrow(columns))

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        reader = pa.RecordBatchReader.from_batches(self._file.schema_arrow, self.batches())
        return reader.__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        return f"EventFile({self.place!r}, {len(self)} events)"


def _check_dictionary(column: pa.Array) -> None:
    """A column of texts uses none that its dictionary lacks: who reads one looks beyond the dictionary's end."""
    if not pa.types.is_dictionary(column.type):
        return
    used = pc.min_max(column.indices)
    least, most = used["min"].as_py(), used["max"].as_py()
    if least is not None and not 0 <= least <= most < len(column.dictionary):
        raise pa.ArrowInvalid(f"a dictionary of {len(column.dictionary)} texts, of which number {most} is used")
