"""Events in Parquet: the columns of :meth:`nearpage.Bundle.events`, each in the encoding that suits it.

Times and frames are written as differences and as streams of bytes; texts, tasks and orders by dictionaries; pages are packed by
zstd. Rows are read and written a group at a time, so that memory does not grow with the trace. The footer has sums of all that is
before it.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Union

import pyarrow as pa
import pyarrow.parquet as pq

from .. import frames
from ..errors import ArgumentError, StoreError

if TYPE_CHECKING:
    import pandas
    import polars

__all__ = ["COLUMNS", "EventFile", "write_events"]

#: Events of a group of rows.
ROWS = 1 << 20

_TEXT = pa.dictionary(pa.int32(), pa.string())
#: What files of the first version have; later versions add columns, which are null in those.
_FIRST: dict[str, pa.DataType] = {
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
COLUMNS: dict[str, pa.DataType] = {
    **_FIRST,
    "node": pa.uint32(),
    "zone": _TEXT,
    "wanted_node": pa.uint32(),
    "percpu_refill": pa.bool_(),
    "fallback_order": pa.uint8(),
    "pageblock_order": pa.uint8(),
    "fallback_type": _TEXT,
    "fragmenting": pa.bool_(),
    "change_ownership": pa.bool_(),
    "lock": pa.uint64(),
    "result": pa.int64(),
    "call_site": _TEXT,
    "pointer": pa.uint64(),
    "bytes_requested": pa.uint64(),
    "bytes": pa.uint64(),
    "accounted": pa.bool_(),
}
#: Those that every event has. Readers need not look for nulls in them, which takes a tenth of their time and more.
_ALWAYS = ("time", "cpu", "event", "pid", "comm")

_ENCODINGS = {"time": "DELTA_BINARY_PACKED", "pfn": "BYTE_STREAM_SPLIT"}
_LEVEL = 9

#: What a file says of itself: the bytes before its footer, and a CRC-32 of each block of them.
_SUMS = b"nearpage.sums"
_BLOCK = 1 << 16


def write_events(path: Path, tables: Iterable[Any], metadata: dict[str, str] | None = None) -> int:
    """Writes events, tables of which the columns are :data:`COLUMNS`: how many there were. The file says of each column what the tables
    say: its unit, what it means."""
    tables = iter(tables)
    first = next(tables, None)
    said = {} if first is None else {field.name: field.metadata for field in pa.table(first).schema}
    fields = [pa.field(name, kind, nullable=name not in _ALWAYS, metadata=said.get(name)) for name, kind in COLUMNS.items()]
    schema = pa.schema(fields, metadata={"nearpage": "events 2", **(metadata or {})})
    count = 0
    with pq.ParquetWriter(
        os.fspath(path),
        schema,
        compression="zstd",
        compression_level=_LEVEL,
        use_dictionary=[name for name in COLUMNS if name not in _ENCODINGS],
        column_encoding=_ENCODINGS,
        # For other readers. Those sums leave out the pages' headers, which have ours.
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

        for table in itertools.chain([] if first is None else [first], tables):
            table = pa.table(table).cast(schema)
            count += table.num_rows
            rows += table.num_rows
            waiting.append(table)
            if rows >= ROWS:
                flush()
        flush()
        # All but the footer is written.
        with open(path, "rb") as written:
            sums = [zlib.crc32(block) for block in iter(lambda: written.read(_BLOCK), b"")]
            length = written.tell()
        writer.add_key_value_metadata({_SUMS: f"{length} {''.join(f'{of:08x}' for of in sums)}"})
    return count


class _Summed(io.RawIOBase):
    """A file whose bytes are compared with their sums when they are read.

    The reader of Parquet takes a flipped bit in a page's header for other values, or for a shorter dictionary.
    """

    def __init__(self, file: pa.NativeFile, sums: bytes) -> None:
        length, digits = sums.split(b" ")
        self._length = int(length)
        self._sums = [int(digits[at : at + 8], 16) for at in range(0, len(digits), 8)]
        self._size = file.size()
        if not 0 <= self._length <= self._size or len(self._sums) != -(-self._length // _BLOCK):
            raise pa.ArrowInvalid(f"of {self._length} bytes it has {len(self._sums)} sums")
        self._file = file
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def read(self, size: int = -1) -> memoryview:
        begin = min(self._at, self._size)
        end = self._size if size < 0 else min(begin + size, self._size)
        # Whole blocks.
        first, last = begin // _BLOCK, -(-end // _BLOCK)
        start = first * _BLOCK
        self._file.seek(start)
        content = memoryview(self._file.read(last * _BLOCK - start))
        for block in range(first, min(last, len(self._sums))):
            from_, to = block * _BLOCK, min((block + 1) * _BLOCK, self._length)
            if zlib.crc32(content[from_ - start : to - start]) != self._sums[block]:
                raise pa.ArrowInvalid(f"bytes {from_} to {to} are not those that were written")
        self._at = end
        return content[begin - start : end - start]


class EventFile:
    """Events of an entry. It is an Arrow stream, as :class:`nearpage.Events` is: pyarrow, pandas, polars and DuckDB read it."""

    def __init__(self, source: Union[str, os.PathLike[str], BinaryIO], place: str) -> None:
        self.place = place
        self._source = source
        with self._judged():
            file = pa.OSFile(os.fspath(source)) if isinstance(source, (str, os.PathLike)) else pa.PythonFile(source, "r")
            metadata = pq.read_metadata(file)
            # Files of earlier versions have no sums.
            sums = (metadata.metadata or {}).get(_SUMS)
            summed = file if sums is None else _Summed(file, sums)
            self._file = pq.ParquetFile(summed, metadata=metadata, page_checksum_verification=True)
        names = self._file.schema_arrow.names
        kinds = {name: self._file.schema_arrow.field(name).type for name in names}
        wrong = [name for name, kind in COLUMNS.items() if kinds.get(name, None if name in _FIRST else kind) != kind]
        if wrong:
            expected = ", ".join(f"{name} ({kind})" for name, kind in COLUMNS.items() if name in wrong)
            raise StoreError(f"{place}: is no table of events, expected the columns {expected}", place, expected)
        self._schema = pa.schema([self._field(name, kind) for name, kind in COLUMNS.items()], self._file.schema_arrow.metadata)
        with self._judged():
            groups = [metadata.row_group(at).num_rows for at in range(metadata.num_row_groups)]
            if min([metadata.num_rows, *groups]) < 0 or sum(groups) != metadata.num_rows:
                raise pa.ArrowInvalid(f"it has {metadata.num_rows} rows, and its groups {sum(groups)}")

    @contextlib.contextmanager
    def _judged(self) -> Iterator[None]:
        try:
            yield
        # What a damaged file raises is of many kinds: ArrowInvalid is a ValueError, others are OSError and NotImplementedError.
        except (pa.ArrowException, OSError, ValueError, NotImplementedError, MemoryError, KeyError) as error:
            message = f"{self.place}: is damaged: {error}, expected a Parquet file of events"
            raise StoreError(message, self.place, "a Parquet file of events") from error

    def __reduce__(self) -> tuple[type[EventFile], tuple[object, str]]:
        # The file is opened anew where it comes to.
        return EventFile, (self._source, self.place)

    def _field(self, name: str, kind: pa.DataType) -> pa.Field:
        known = self._file.schema_arrow
        return known.field(name) if name in known.names else pa.field(name, kind)

    @property
    def schema(self) -> pa.Schema:
        """The columns, with their units and what they mean."""
        return self._schema

    def _wanted(self, columns: list[str] | None) -> tuple[pa.Schema, list[str]]:
        """The columns that are asked for, and those of them that the file has."""
        for name in columns or ():
            if name not in COLUMNS:
                expected = f"some of {', '.join(COLUMNS)}"
                raise ArgumentError(f"columns: there is no column {name!r}, expected {expected}", "columns", expected)
        schema = self._schema if columns is None else pa.schema([self._schema.field(name) for name in columns], self._schema.metadata)
        # At least one, which says how many rows there are.
        return schema, [name for name in schema.names if name in self._file.schema_arrow.names] or ["time"]

    def __len__(self) -> int:
        return int(self._file.metadata.num_rows)

    def batches(self, columns: list[str] | None = None, rows: int = 1 << 15) -> Iterator[pa.RecordBatch]:
        """Batches of up to so many rows, by default as many as caches hold; memory does not grow with the trace."""
        if rows < 1:
            raise ArgumentError(f"rows={rows}, expected 1 or more", "rows", "1 or more")
        # More than there are need no more room.
        rows = min(rows, max(len(self), 1))
        schema, there = self._wanted(columns)
        with self._judged():
            read = 0
            for batch in self._file.iter_batches(batch_size=rows, columns=there, use_threads=False):
                read += batch.num_rows
                yield _filled(batch, schema)
            self._check_rows(read)

    def _check_rows(self, rows: int) -> None:
        if rows != len(self):
            raise pa.ArrowInvalid(f"it gives {rows} rows, and says that it has {len(self)}")

    def to_arrow(self, columns: list[str] | None = None) -> pa.Table:
        schema, there = self._wanted(columns)
        with self._judged():
            # Not all at once: Ctrl-C is heard between groups.
            groups = [self._file.read_row_group(at, columns=there) for at in range(self._file.num_row_groups)]
            table = pa.concat_tables(groups) if groups else self._file.read(columns=there)
            self._check_rows(table.num_rows)
            return pa.table([_column(table, field, len(self)) for field in schema], schema)

    def to_pandas(self, columns: list[str] | None = None) -> pandas.DataFrame:
        return frames.to_pandas(self.to_arrow(columns))

    def to_polars(self, columns: list[str] | None = None) -> polars.DataFrame:
        import polars

        return polars.DataFrame(self.to_arrow(columns))

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        reader = pa.RecordBatchReader.from_batches(self._schema, self.batches())
        return reader.__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        return f"EventFile({self.place!r}, {len(self)} events)"


def _filled(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([_column(batch, field, batch.num_rows) for field in schema], schema=schema)


def _column(table: pa.Table | pa.RecordBatch, field: pa.Field, rows: int) -> pa.Array | pa.ChunkedArray:
    """A column of a file, or nulls where a file of an earlier version lacks it."""
    return table.column(field.name) if field.name in table.schema.names else pa.nulls(rows, field.type)
