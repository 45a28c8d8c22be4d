"""A store: a folder or an object store with bundles, their events, a catalogue, and results.

```text
store.json                     says that this is a store
catalogue/HASH.json            an entry; it is written last, so an entry is there wholly or not at all
entries/HASH/bundle.tar.zst    the bundle
events/entry=HASH/events.parquet   its events; a store of an earlier version has them in entries/HASH
damaged/ID.json                what could not be taken in, and why
results/KK/KEY.json            a finished key
claims/KK/KEY.N                who computes a key
catalogue.parquet              entries that were read before: a cache, never newer than they are
```

Objects are immutable but for the cache; everything is made once, with the condition that there is none. So a writer that is cut
off leaves nothing, or something that nothing refers to.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from .. import _nearpage
from ..errors import StoreError
from . import catalogue, results
from .files import Files, open_files
from .parquet import EventFile
from .study import Study, Task
from .words import many

__all__ = ["FORMAT", "USUAL", "Store"]

_log = logging.getLogger(__name__)

#: Where a store is unless another place is named.
USUAL = "nearpage-store"
#: What a store says that it is.
FORMAT = "nearpage-store 1"

_MARK = "store.json"
_CACHE = "catalogue.parquet"
#: So many entries that the cache lacks are worth another one.
_CACHE_LACKS = 64


class Store:
    """A store. It can be sent to other processes and machines, which open it by its URL."""

    def __init__(self, files: Files, url: str, options: dict[str, Any]) -> None:
        self.files = files
        self.url = url
        self._options = options

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self.url, self._options)

    def __repr__(self) -> str:
        return f"Store({self.url!r})"

    @classmethod
    def open(cls, url: str | os.PathLike[str], **options: Any) -> Store:
        """Opens a store: a local path, ``s3://bucket/prefix``, ``gs://bucket/prefix``. ``options`` go to fsspec.

        Raises :class:`nearpage.StoreError` if there is none, or if it is of a later version.
        """
        store = _reopen(_place(url), options)
        try:
            content = _mark(store)
        except (FileNotFoundError, NotADirectoryError):
            expected = f"a folder with {_MARK}; nearpage-fleet ingest makes one"
            raise StoreError(f"{store.url}: is no store, expected {expected}", store.url, expected) from None
        try:
            form = json.loads(content)["format"]
        except (ValueError, KeyError, TypeError):
            raise StoreError(f"{store.url}: {_MARK} is damaged, expected format {FORMAT}", store.url, FORMAT) from None
        if form != FORMAT:
            raise StoreError(f"{store.url}: has format {form!r}, expected {FORMAT}", store.url, FORMAT)
        return store

    @classmethod
    def create(cls, url: str | os.PathLike[str], **options: Any) -> Store:
        """Opens a store, or makes one where nothing is."""
        store = _reopen(_place(url), options)
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            _mark(store)
            return cls.open(url, **options)
        if next((name for name in store.files.names("") if not name.startswith(".")), None) is not None:
            expected = "a store, or a place where nothing is"
            raise StoreError(f"{store.url}: is no store and not empty, expected {expected}", store.url, expected)
        store.files.create(_MARK, json.dumps({"format": FORMAT, "version": _nearpage.__version__}).encode())
        return cls.open(url, **options)

    @staticmethod
    def place(url: str | os.PathLike[str]) -> str:
        """A URL, or the whole path of a folder: the same store wherever it is read."""
        return _place(url)

    # The catalogue.

    def hashes(self) -> list[str]:
        """The hashes of all entries."""
        names = (name.rpartition("/")[2] for name in self.files.names("catalogue"))
        return sorted(name[: -len(".json")] for name in names if name.endswith(".json"))

    def entries(self) -> pa.Table:
        """The catalogue: a row an entry, by load, kernel and hash. Entries that cannot be read are in :meth:`damaged`."""
        return self._entries()[0]

    def entry(self, hash: str) -> dict[str, Any]:
        """An entry by its hash, or by the beginning of it, 4 digits or more."""
        if len(hash) == 64:
            try:
                return catalogue.read_entry(self.files.read(f"catalogue/{hash}.json"), f"catalogue/{hash}.json")
            except FileNotFoundError:
                pass
        found = [known for known in self.hashes() if len(hash) >= 4 and known.startswith(hash)]
        if len(found) != 1:
            what = "no entry" if not found else f"{len(found)} entries"
            expected = "the beginning of one hash of nearpage-fleet ls"
            raise StoreError(f"{self.url}: {what} {hash!r}, expected {expected}", self.url, expected)
        return catalogue.read_entry(self.files.read(f"catalogue/{found[0]}.json"), f"catalogue/{found[0]}.json")

    def damaged(self) -> pa.Table:
        """What could not be taken in or cannot be read: ``source``, ``reason``."""
        rows = list(self._entries()[1])
        for name, content in self.files.read_many(self.files.names("damaged")):
            if content is not None:
                with contextlib.suppress(ValueError, KeyError, TypeError):
                    told = json.loads(content)
                    rows.append((str(told["source"]), str(told["reason"])))
        rows.sort()
        return pa.table({"source": pa.array([of[0] for of in rows], pa.string()), "reason": pa.array([of[1] for of in rows], pa.string())})

    def _entries(self) -> tuple[pa.Table, list[tuple[str, str]]]:
        hashes = self.hashes()
        known = self._cached()
        # The cache adds nothing that is not there.
        known = known.filter(pc.is_in(known["hash"], pa.array(hashes, pa.string())))
        lacking = sorted(set(hashes) - set(known["hash"].to_pylist()))
        entries, wrong = [], []
        for name, content in self.files.read_many(f"catalogue/{hash}.json" for hash in lacking):
            if content is None:
                continue
            try:
                entries.append(catalogue.read_entry(content, name))
            except StoreError as error:
                wrong.append((name, str(error)))
        table = catalogue.sorted_table([known, catalogue.table_of(entries)])
        if len(entries) >= _CACHE_LACKS:
            self._keep(table)
        return table, wrong

    def _cached(self) -> pa.Table:
        try:
            table = pq.read_table(io.BytesIO(self.files.read(_CACHE)), page_checksum_verification=True)
            return table.select(list(catalogue.COLUMNS)).cast(catalogue.SCHEMA)
        # It can be made again whatever is wrong with it.
        except (FileNotFoundError, pa.ArrowException, OSError, ValueError, KeyError):
            return catalogue.SCHEMA.empty_table()

    def _keep(self, entries: pa.Table) -> None:
        content = io.BytesIO()
        pq.write_table(entries, content, compression="zstd", write_page_checksum=True)
        # A reader that may not write reads all the same.
        with contextlib.suppress(OSError):
            self.files.replace(_CACHE, content.getvalue())

    def select(self, selectors: Iterable[str]) -> list[str]:
        """The hashes of the entries that a study selects: ``all``, beginnings of hashes, or loads, with ``*``."""
        entries = self._entries()[0].select(["hash", "load"]).to_pydict()
        selected: dict[str, None] = {}
        for selector in selectors:
            before = len(selected)
            is_found = False
            for hash, load in zip(entries["hash"], entries["load"]):
                if selector == "all" or len(selector) >= 8 and hash.startswith(selector) or fnmatchcase(str(load), selector):
                    selected[hash] = None
                    is_found = True
            if not is_found and (selector != "all" or before):
                expected = "all, the beginning of a hash (8 digits or more), or a load of nearpage-fleet ls"
                raise StoreError(f"{self.url}: no entry is {selector!r}, expected {expected}", self.url, expected)
        if not selected:
            expected = "entries (nearpage-fleet ingest takes bundles in)"
            raise StoreError(f"{self.url}: is empty, expected {expected}", self.url, expected)
        return list(selected)

    # Entries.

    @contextlib.contextmanager
    def local_bundle(self, hash: str) -> Iterator[Path]:
        """A local file with the bundle of an entry, for as long as the context lives."""
        entry = self.entry(hash)
        try:
            context = self.files.local(entry["bundle"])
            path = context.__enter__()
        except FileNotFoundError:
            raise self._lacks(entry["bundle"], "the bundle of an entry") from None
        try:
            yield path
        finally:
            context.__exit__(None, None, None)

    def bundle(self, hash: str) -> _nearpage.Bundle:
        """The bundle of an entry."""
        with self.local_bundle(hash) as path:
            # It stays open, and outlives its name.
            return _nearpage.Bundle.open(path)

    def events(self, hash: str) -> EventFile:
        """The events of an entry, from Parquet."""
        names = catalogue.events_names(self.entry(hash)["hash"])
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                return EventFile(self.files.source(name), f"{self.url}: {name}")
        raise self._lacks(names[0], "the events of an entry")

    def events_place(self, hash: str) -> str | None:
        """Where the events of an entry are: a path, or a URL; nothing if they are not there."""
        there = {name for name in catalogue.events_names(hash) if next(iter(self.files.names(name.rpartition("/")[0])), None) is not None}
        found = next((name for name in catalogue.events_names(hash) if name in there), None)
        return None if found is None else f"{self.files.url}/{found}"

    def sql(self, statement: str) -> pa.Table:
        """What a statement of SQL answers over the views of :mod:`nearpage.fleet.sql`: ``entries``, ``results``, ``events``, ``fidelity``."""
        from .sql import query

        return query(self, statement)

    def _lacks(self, name: str, expected: str) -> StoreError:
        return StoreError(f"{self.url}: {name} is not there, expected {expected}", self.url, expected)

    # Results.

    def tasks(self, study: Study) -> list[Task]:
        """The tasks of a study on the entries that it selects here."""
        return study.tasks(self.select(study.entries))

    def result(self, task: Task) -> dict[str, Any] | None:
        """The result of a task, if it is finished. One that is damaged is not."""
        try:
            return results.read_result(self.files.read(results.name_of(task.key)), task.key)
        except FileNotFoundError:
            return None

    def finished(self) -> set[str]:
        """The keys of results that are there."""
        names = (name.rpartition("/")[2] for name in self.files.names("results"))
        return {name[: -len(".json")] for name in names if name.endswith(".json")}

    def results(self, study: Study | None = None, *, versions: str = "this") -> pa.Table:
        """Finished keys, a row each, sorted by key: those of a study, or all. The columns are those of :mod:`nearpage.fleet`.

        ``versions="all"`` has those of other versions, too; the columns ``version`` and ``model_version`` tell them apart.
        """
        if versions not in ("this", "all"):
            raise StoreError(f"versions={versions!r}, expected this or all", "versions", "this or all")
        keys = self.finished()
        if study is not None:
            keys &= {task.key for task in self.tasks(study)}
        known = self._entries()[0].select(["hash", "quantities", *results.OF_ENTRY])
        entries = {entry["hash"]: entry for entry in known.to_pylist()}
        current: dict[str, str] = {}
        rows, damaged = [], 0
        for name, content in self.files.read_many(map(results.name_of, sorted(keys))):
            row = None if content is None else results.read_result(content, name.rpartition("/")[2][: -len(".json")])
            damaged += content is not None and row is None
            if row and (versions == "all" or results.is_of_this_version(row, current)):
                rows.append(row)
        if damaged:
            _log.warning("%s: %s left out: a run of their study computes them again", self.url, many(damaged, "damaged result"))
        return results.table_of(rows, entries)


def _place(url: str | os.PathLike[str]) -> str:
    text = os.fspath(url)
    if not isinstance(text, str) or not text:
        raise StoreError(f"{url!r} is no place, expected a path or a URL", None, "a path or a URL")
    # Workers may run elsewhere in the tree.
    return text.rstrip("/") if "://" in text else os.path.abspath(text)


def _mark(store: Store) -> bytes:
    """What a store says that it is. Libraries of object stores raise errors of their own where they do not get there."""
    try:
        return store.files.read(_MARK)
    except (FileNotFoundError, NotADirectoryError):
        raise
    except Exception as error:
        expected = "a place that can be reached and read: its address, and credentials for it"
        raise StoreError(f"{store.url}: {error or type(error).__name__}, expected {expected}", store.url, expected) from error


def _reopen(url: str, options: dict[str, Any]) -> Store:
    return Store(open_files(url, options), url, options)
