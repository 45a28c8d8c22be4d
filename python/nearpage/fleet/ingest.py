"""Bundles into a store.

A bundle is a folder with ``meta.json``, or a tar of one. Its hash is that of its unpacked content, so it is the same however it
is packed, and a bundle that is there already is not taken in again. The objects of an entry are written first, its line in the
catalogue last: cut off anywhere, an entry is there wholly or not at all, and the next ingest does the rest.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import shlex
import tarfile
import tempfile
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Future, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from .. import _nearpage
from ..errors import ArgumentError, NearpageError, StoreError
from . import catalogue, parquet
from .executors import Executor, Submits, as_executor
from .logged import quantities_of
from .redact import Redactor
from .store import Store
from .study import canonical
from .words import many

__all__ = ["Ingested", "bundles_in", "ingest", "looked_through"]

_PACKED = {b"\x28\xb5\x2f\xfd": "zst", b"\x1f\x8b": "gz", b"BZh": "bz2"}
_ENDINGS = (".tar", ".tar.zst", ".tar.gz", ".tgz", ".tar.bz2")
_INNER = (".zst", ".gz", ".bz2")
#: Workers that a bundle may lose.
_LOSSES = 2
#: Bytes of a capture of settings that are looked at, at most.
_MOST_SETTINGS = 1 << 20
#: Bytes of another file that is held as a whole, at most.
_MOST_WHOLE = 64 << 20
#: There is no room: that is no fault of a bundle.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
#: What reading a damaged archive raises.
_DAMAGE = (OSError, pa.ArrowException, ValueError, KeyError, NearpageError)


@dataclass(frozen=True)
class Ingested:
    """What became of a bundle. ``is_new`` is whether it was not there before; ``reason`` is why it could not be taken in."""

    source: str
    hash: str | None
    is_new: bool
    reason: str | None


def bundles_in(paths: Iterable[str | os.PathLike[str]]) -> list[Path]:
    """The bundles among some paths: each is one, or a folder in which to look for them."""
    found: dict[Path, None] = {}

    def look(path: Path, is_named: bool) -> None:
        if path.is_dir():
            if (path / "meta.json").exists():
                found[path] = None
                return
            for below in sorted(path.iterdir()):
                if below.is_dir() or below.name.endswith(_ENDINGS):
                    look(below, False)
        elif is_named or path.name.endswith(_ENDINGS):
            found[path] = None

    if isinstance(paths, (str, bytes, os.PathLike)):
        expected = "a list of bundles, or of folders with bundles"
        raise ArgumentError(f"paths={paths!r}, expected {expected}", "paths", expected)
    for path in map(Path, paths):
        before = len(found)
        if not path.exists() and not path.is_symlink():
            expected = "a bundle, or a folder with bundles"
            raise ArgumentError(f"{path}: is not there, expected {expected}", str(path), expected)
        try:
            look(path, True)
        except OSError as error:
            raise ArgumentError(f"{path}: {error}, expected bundles", str(path), "bundles") from error
        if len(found) == before and path not in found:
            expected = "a bundle, or a folder with bundles (folders with meta.json, or tars of them)"
            raise ArgumentError(f"{path}: has no bundle, expected {expected}", str(path), expected)
    return list(found)


def ingest(
    store: Store,
    paths: Iterable[str | os.PathLike[str]],
    *,
    load: str | None = None,
    machine: str | None = None,
    host: str | None = None,
    service: str | None = None,
    tags: Mapping[str, str] | None = None,
    salt: bytes | None = None,
    executor: Executor | Submits | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> list[Ingested]:
    """Takes bundles into a store; folders are looked through for them. A damaged one is noted with its reason, and the rest go on.

    ``load`` and ``machine`` name what ran, and where; by default the load has the name of the bundle, and the machine is
    described. ``host`` is by default what the recording says; ``service`` is what the host is for, and ``tags`` are words of yours. With a
    ``salt``, names of tasks are hashed and what is personal is left out, but for what is given here. ``executor`` is as that of
    :func:`run`; workers read the paths themselves. ``progress`` is called with bundles that are done and bundles that there are.
    """
    given = {"load": load, "machine": machine, "host": host, "service": service}
    names = {key: catalogue.text(name) for key, name in given.items() if name is not None}
    if tags:
        names["tags"] = catalogue.text(canonical(dict(tags)))
    redactor = Redactor(salt) if salt is not None else None
    found = bundles_in(paths)
    store.files.sweep()
    done: dict[int, Ingested] = {}
    with as_executor(executor) as runner:
        for at, one in _all(store, found, names, redactor, runner):
            done[at] = one
            if progress:
                progress(len(done), len(found))
    return [done[at] for at in range(len(found))]


def _all(store: Store, paths: list[Path], names: dict[str, str], redactor: Redactor | None, runner: Executor) -> Iterator[tuple[int, Ingested]]:
    """Takes all in, some at once. One whose worker is lost is asked for again: what it had written is there, or nothing refers to it."""
    waiting, losses = deque(enumerate(paths)), Counter[int]()
    under_way: dict[Future[Ingested], tuple[int, Path]] = {}
    while waiting or under_way:
        lost: BaseException | None = None
        while waiting and len(under_way) < runner.workers:
            at, path = waiting.popleft()
            under_way[runner.submit(_one, store, path.absolute(), str(path), names, redactor)] = at, path
        for future in wait(under_way, return_when=FIRST_COMPLETED).done:
            at, path = under_way.pop(future)
            error = CancelledError() if future.cancelled() else future.exception()
            if isinstance(error, (BrokenExecutor, CancelledError, ConnectionError)) and losses[at] < _LOSSES:
                losses[at] += 1
                waiting.append((at, path))
                lost = error
            else:
                yield at, future.result()
        if lost is not None:
            runner.recover()


def _one(store: Store, path: Path, given: str, names: dict[str, str], redactor: Redactor | None) -> Ingested:
    """Takes a bundle in. Its path is whole, since workers may be elsewhere in the tree; it is shown as it was given."""
    source = os.path.abspath(path)
    shown = redactor.name(source) if redactor else catalogue.text(given)
    damaged = f"damaged/{hashlib.sha256(shown.encode(errors='surrogateescape')).hexdigest()[:32]}.json"
    with tempfile.TemporaryDirectory(prefix="nearpage-fleet-") as folder:
        try:
            bundle = path
            if redactor:
                bundle = Path(folder) / "bundle.tar.zst"
                redactor.bundle(_members(path, _root(path)), bundle, shown)
            look = _look(bundle)
        except _DAMAGE as error:
            return _note(store, damaged, shown, _reason(error, path, shown, folder if redactor else None))
        content = look.hash
        known = f"catalogue/{content}.json"
        if _is_there(store, content):
            store.files.delete(damaged)
            return Ingested(shown, content, False, None)
        try:
            entry, files = _read(bundle, Path(folder), look, redactor)
        except _DAMAGE as error:
            return _note(store, damaged, shown, _reason(error, path, shown, folder if redactor else None))
        entry["load"] = catalogue.text(redactor.name(_load(path)) if redactor else _load(path))
        entry["machine"] = catalogue.text(_described(entry))
        entry |= names
        for name, local in files.items():
            store.files.publish(name, local)
        line = canonical(entry).encode()
        is_new = store.files.create(known, line)
        if not is_new and not _is_there(store, content):
            # What is there is damaged.
            store.files.replace(known, line)
            is_new = True
    store.files.delete(damaged)
    return Ingested(shown, content, is_new, None)


def _is_there(store: Store, content: str) -> bool:
    """Whether there is an entry, with its objects. One that is damaged, as after a crash of its machine, is taken in again."""
    name = f"catalogue/{content}.json"
    try:
        line = store.files.read(name)
    except FileNotFoundError:
        return False
    if catalogue.is_later(line):
        return True
    try:
        entry = catalogue.read_entry(line, name)
    except StoreError:
        return False
    newer, older = catalogue.events_names(content)
    there = {*store.files.names(f"entries/{content}"), *store.files.names(newer.rpartition("/")[0])}
    return entry["bundle"] in there and (newer in there or older in there)


def _reason(error: Exception, path: Path, shown: str, redacted: str | None) -> str:
    """Why a bundle could not be taken in; that the store is full is no fault of a bundle. `redacted` is the folder of ours that it
    was read from if it is redacted: then nothing of its names is told."""
    if isinstance(error, OSError):
        is_elsewhere = error.filename is not None and not str(error.filename).startswith(str(path))
        if is_elsewhere or error.errno in _FULL:
            raise error
    reason = str(error) or type(error).__name__
    if redacted and isinstance(error, OSError) and error.strerror:
        # Names of files within a bundle can be personal.
        reason = error.strerror
    for personal in (str(path), *([path.name, redacted] if redacted else [])):
        reason = reason.replace(personal, shown)
    return catalogue.text(reason)


def _note(store: Store, name: str, shown: str, reason: str) -> Ingested:
    """Notes why a bundle could not be taken in."""
    store.files.replace(name, canonical({"source": shown, "reason": reason, "version": _nearpage.__version__}).encode())
    return Ingested(shown, None, False, reason)


class _Content(io.RawIOBase):
    """The file that a reader of a bundle is at."""

    def __init__(self, files: _nearpage.BundleFiles) -> None:
        super().__init__()
        self._files = files

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        part = self._files.read(len(buffer))
        buffer[: len(part)] = part
        return len(part)


def _inner(name: str) -> str:
    """The name of a file without the ending of how it is packed."""
    return next((name[: -len(ending)] for ending in _INNER if name.endswith(ending)), name)


def _members(path: Path, root: str | None) -> Iterator[tuple[str, BinaryIO]]:
    """The files of a bundle, by their names within it, and their unpacked content. In a tar it is within `root`, or names
    are whole if that is None. Links and devices are no files of a bundle."""
    files = _nearpage.BundleFiles.open(path)
    while member := files.next():
        yield _inner(_within(member[0], root or "")), io.BufferedReader(_Content(files), 1 << 18)  # type: ignore[type-var]


def _root(path: Path) -> str:
    """The folder of a tar that has meta.json, the first if several have."""
    if path.is_dir():
        return ""
    files = _nearpage.BundleFiles.open(path)
    while member := files.next():
        folder, _, name = member[0].rpartition("/")
        if name == "meta.json":
            return folder
    raise StoreError(f"{path}: has no meta.json, expected a bundle", str(path), "a bundle: a folder with meta.json, or a tar of one")


def _within(name: str, root: str) -> str:
    return name[len(root) + 1 :] if root and name.startswith(f"{root}/") else name


@dataclass(frozen=True)
class _Look:
    """What one pass over the files of a bundle tells."""

    hash: str
    meta: dict[str, Any]
    trace_bytes: int | None
    #: What ``before/sysctl`` says.
    sysctls: dict[str, str]


def _look(path: Path) -> _Look:
    parts: list[tuple[str, str]] = []
    meta: dict[str, Any] | None = None
    root, trace_bytes, settings = "", None, b""
    for name, content in _members(path, None):
        of, size, kept = hashlib.sha256(), 0, b""
        is_meta = name.rpartition("/")[2] == "meta.json" and meta is None
        is_settings = name == "before/sysctl" or name.endswith("/before/sysctl")
        while part := content.read(1 << 20):
            of.update(part)
            size += len(part)
            if is_meta and size > _MOST_WHOLE:
                raise StoreError(f"{path}: {name} is longer than {_MOST_WHOLE >> 20} MiB, expected a bundle", str(path), "a bundle")
            kept = kept + part if is_meta or is_settings and size <= _MOST_SETTINGS else b""
        if is_meta:
            root, meta = name.rpartition("/")[0], _document(kept)
        if name.rpartition("/")[2] == "trace.txt":
            trace_bytes = size
        settings = kept if is_settings else settings
        parts.append((name, of.hexdigest()))
    if meta is None:
        expected = "a bundle: a folder with meta.json, or a tar of one"
        raise StoreError(f"{path}: has no meta.json, expected {expected}", str(path), expected)
    parts = sorted((_within(name, root), of) for name, of in parts)
    whole = hashlib.sha256(canonical(parts).encode(errors="surrogateescape"))
    return _Look(whole.hexdigest(), meta, trace_bytes, _sysctls(settings))


def _sysctls(content: bytes) -> dict[str, str]:
    """Settings about memory, of ``NAME = VALUE`` lines."""
    found = {}
    for line in content.decode(errors="replace").splitlines():
        name, equals, value = line.partition("=")
        if equals and name.strip().startswith(("vm.", "kernel.numa_balancing")):
            found[name.strip()] = " ".join(value.split())
    return found


def looked_through(path: Path) -> tuple[str, dict[str, Any]]:
    """The hash of a bundle's files, however they are packed, and what it says of itself: ``name``, ``twin_of``, ``host`` and others."""
    try:
        look = _look(path)
        return look.hash, _identity(look.meta, False)
    except _DAMAGE as error:
        raise ArgumentError(f"{path}: {error}, expected a bundle", str(path), "a bundle") from error


def _document(content: bytes) -> dict[str, Any]:
    document = json.loads(content)
    return document if isinstance(document, dict) else {}


def _read(bundle: Path, folder: Path, look: _Look, redactor: Redactor | None) -> tuple[dict[str, Any], dict[str, Path]]:
    """Reads a bundle: its entry, and the files of it by their names in the store."""
    opened = _nearpage.Bundle.open(bundle)
    report = opened.replay()
    document, meta, content = report.to_dict(), look.meta, look.hash
    first, last = [], []

    def watched() -> Iterator[Any]:
        import pyarrow.compute as pc

        for part in opened.events():
            table = pa.table(part)
            if table.num_rows:
                # Clocks may go back.
                ends = pc.min_max(table["time"].cast(pa.int64())).as_py()
                first.append(ends["min"])
                last.append(ends["max"])
            yield table

    events = folder / "events.parquet"
    count = parquet.write_events(events, watched(), {"entry": content})
    packed, ending = _packed(bundle, folder)
    files = {f"entries/{content}/bundle{ending}": packed, catalogue.events_names(content)[0]: events}
    entry = {
        "format": catalogue.FORMAT,
        "hash": content,
        "kernel": opened.kernel,
        "arch": meta.get("arch") if isinstance(meta.get("arch"), str) else None,
        **_nearpage.machine_facts(report),
        "seconds": (max(last) - min(first)) / 1e9 if first else 0.0,
        "events": count,
        "lost_events": document["trace"]["lost_events"],
        "unsorted": document["trace"]["unsorted"],
        "fidelity": report.fidelity.percent,
        "fidelity_model": report.model,
        "bundle": f"entries/{content}/bundle{ending}",
        "bundle_bytes": packed.stat().st_size,
        "events_bytes": events.stat().st_size,
        "redacted": redactor is not None,
        "version": _nearpage.__version__,
        "trace_bytes": look.trace_bytes,
        "trace_packed_bytes": _packed_trace(bundle),
        "quantities": canonical(quantities_of(document["fidelity"]["rows"])),
        **_identity(meta, redactor is not None),
        "sysctls": canonical(look.sysctls) if look.sysctls else None,
    }
    return entry, files


def _identity(meta: dict[str, Any], is_redacted: bool) -> dict[str, Any]:
    """What a recording says of itself; what it does not say, or says as something else, is not known."""

    def known(key: str) -> str | None:
        value = meta.get(key)
        return catalogue.text(value) if isinstance(value, str) and value else None

    def time(key: str) -> int | None:
        value = meta.get(key)
        # No year of four digits is beyond.
        return value if isinstance(value, int) and 0 < value < 253_402_300_800 and not is_redacted else None

    command = meta.get("command")
    words = command if isinstance(command, list) and all(isinstance(word, str) for word in command) else []
    return {
        **{key: known(key) for key in ("name", "twin_of", "host")},
        "begin": time("start_epoch"),
        "end": time("end_epoch"),
        "command": catalogue.text(shlex.join(words)) if words and not is_redacted else None,
    }


def _packed_trace(bundle: Path) -> int | None:
    """Bytes of the trace if it is packed by itself."""
    packed = [bundle / f"trace.txt{ending}" for ending in _INNER]
    return next((path.lstat().st_size for path in packed if path.exists()), None) if bundle.is_dir() else None


def _packed(bundle: Path, folder: Path) -> tuple[Path, str]:
    """A bundle as one file. A tar stays as it is; a folder becomes a tar of its files as they are."""
    if not bundle.is_dir():
        with bundle.open("rb") as source:
            begin = source.read(4)
        kind = next((kind for magic, kind in _PACKED.items() if begin.startswith(magic)), None)
        return bundle, ".tar" + (f".{kind}" if kind else "")
    path = folder / "bundle.tar"
    files = _nearpage.BundleFiles.open(bundle, stored=True)
    with tarfile.open(path, "w") as archive:
        while stored := files.next():
            member = tarfile.TarInfo(f"{bundle.name}/{stored[0]}")
            member.size = stored[1] or 0
            archive.addfile(member, io.BufferedReader(_Content(files), 1 << 18))  # type: ignore[type-var]
    return path, ".tar"


def _load(path: Path) -> str:
    """What ran: the name of the bundle, without that of its kernel."""
    name = os.path.basename(os.path.abspath(path))
    return next((name[: -len(ending)] for ending in sorted(_ENDINGS, key=len, reverse=True) if name.endswith(ending)), name)


def _described(entry: dict[str, Any]) -> str:
    memory = entry["memory_bytes"] / (1 << 20)
    nodes = many(entry["nodes"], "node")
    if entry["nodes_with_memory"] != entry["nodes"]:
        nodes += f" ({entry['nodes_with_memory']} with memory)"
    return f"{entry['arch'] or 'unknown'}, {nodes}, {many(entry['cpus'], 'CPU')}, {memory:.0f} MiB"
