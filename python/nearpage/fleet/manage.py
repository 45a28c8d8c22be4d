"""What is done with stores as a whole: entries go, what nothing refers to goes, one store is merged into another, tables are exported.

A line of the catalogue goes before its objects and comes after them, as in ingest: cut off anywhere, an entry is there wholly or not at all, and
the same call does the rest.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from .. import _nearpage
from ..errors import ArgumentError, StoreError
from . import catalogue, results
from .files import process_is_gone
from .sql import fidelity_of
from .store import Store

__all__ = ["Gone", "export", "gc", "merge", "rm"]


@dataclass(frozen=True)
class Gone:
    """What was deleted, by its kind: names of objects."""

    entries: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{len(self.entries)} objects of entries, {len(self.results)} results, {len(self.claims)} claims"


def rm(store: Store, hashes: Iterable[str]) -> Gone:
    """Deletes entries, by their hashes or the beginnings of them, with their events and results."""
    whole = [store.entry(hash)["hash"] for hash in hashes]
    gone = []
    for hash in whole:
        store.files.delete(f"catalogue/{hash}.json")
        gone += _objects_of(store, hash)
    for name in gone:
        store.files.delete(name)
    return Gone(entries=tuple(gone), results=tuple(_results(store, lambda result: result is not None and result["entry"] in whole)))


def gc(store: Store, *, other_versions: bool = False) -> Gone:
    """Deletes what nothing refers to: objects without a line in the catalogue, results without an entry or that are damaged, claims of
    processes of this machine that are no more; with ``other_versions`` the results of other code, too. Not while bundles are taken in:
    their objects come before their lines."""
    known = set(store.hashes())
    names = [*store.files.names("entries"), *store.files.names("events")]
    lost = tuple(sorted(name for name in names if name.split("/")[1].removeprefix("entry=") not in known))
    for name in lost:
        store.files.delete(name)
    current: dict[str, str] = {}

    def is_lost(result: dict[str, Any] | None) -> bool:
        return result is None or result["entry"] not in known or other_versions and not results.is_of_this_version(result, current)

    claims = []
    for name, content in store.files.read_many(list(store.files.names("claims"))):
        try:
            claim = json.loads(content or b"{}")
        except ValueError:
            claim = {}
        if content is not None and isinstance(claim, dict) and process_is_gone(claim):
            store.files.delete(name)
            claims.append(name)
    return Gone(lost, tuple(_results(store, is_lost)), tuple(sorted(claims)))


def _objects_of(store: Store, hash: str) -> list[str]:
    return sorted([*store.files.names(f"entries/{hash}"), *store.files.names(catalogue.events_names(hash)[0].rpartition("/")[0])])


def _results(store: Store, is_to_go: Callable[[dict[str, Any] | None], bool]) -> list[str]:
    """Deletes results that are to go; ``None`` is one that cannot be read."""
    gone = []
    for name, content in store.files.read_many(sorted(map(results.name_of, store.finished()))):
        if content is None:
            continue
        if is_to_go(results.read_result(content, name.rpartition("/")[2][: -len(".json")])):
            store.files.delete(name)
            gone.append(name)
    return gone


def merge(store: Store, other: Store) -> tuple[int, int]:
    """Takes the entries and the results of another store: how many were new. What is there already stays as it is; both stores have the
    same content by the same name."""
    own, entries, keys = set(store.hashes()), 0, 0
    for hash in other.hashes():
        if hash in own:
            continue
        line = other.files.read(f"catalogue/{hash}.json")
        catalogue.read_entry(line, f"{other.url}/catalogue/{hash}.json")
        for name in _objects_of(other, hash):
            with other.files.local(name) as path:
                store.files.publish(name, path)
        entries += store.files.create(f"catalogue/{hash}.json", line)
    finished = store.finished()
    for name, content in other.files.read_many(sorted(results.name_of(key) for key in other.finished() - finished)):
        # One that is damaged is computed again where it is asked for.
        if content is not None and results.read_result(content, name.rpartition("/")[2][: -len(".json")]):
            keys += store.files.create(name, content)
    return entries, keys


def export(store: Store, folder: str | os.PathLike[str], *, events: bool = False) -> list[Path]:
    """Writes ``entries.parquet``, ``results.parquet`` and ``fidelity.parquet`` into a new folder, ``schema.json`` with what their columns
    mean, and with ``events`` those as ``events/entry=HASH/events.parquet``: what anything reads that knows Parquet."""
    root = Path(folder)
    if root.exists() and any(root.iterdir()):
        raise ArgumentError(f"{root}: is not empty, expected a new folder", str(root), "a new folder")
    entries = store.entries()
    tables = {"entries": entries, "results": store.results(versions="all"), "fidelity": fidelity_of(entries)}
    try:
        root.mkdir(parents=True, exist_ok=True)
        made = []
        for name, table in tables.items():
            pq.write_table(table, root / f"{name}.parquet", compression="zstd", write_page_checksum=True)
            made.append(root / f"{name}.parquet")
        schema = {
            "format": "nearpage-export 1", "version": _nearpage.__version__,
            "entries": {name: meaning for name, (_, meaning) in catalogue.COLUMNS.items()},
            "columns": {name: {field.name: str(field.type) for field in table.schema} for name, table in tables.items()},
        }  # fmt: skip
        (root / "schema.json").write_text(json.dumps(schema, indent=1) + "\n", encoding="utf-8")
        made.append(root / "schema.json")
        for hash in entries.column("hash").to_pylist() if events else []:
            found = next((name for name in _objects_of(store, hash) if name.endswith("/events.parquet")), None)
            if found is None:
                expected = "the events of an entry"
                raise StoreError(f"{store.url}: the events of {hash} are not there, expected {expected}", store.url, expected)
            target = root / catalogue.events_names(hash)[0]
            target.parent.mkdir(parents=True)
            with store.files.local(found) as path:
                target.write_bytes(path.read_bytes())
            made.append(target)
    except OSError as error:
        raise ArgumentError(f"{root}: {error}, expected a folder that can be written", str(root), "a folder that can be written") from error
    return made
