"""Recordings that settings are tried on, and what was measured of them: each once, whatever ends the process.

What is measured is a line of JSON in ``measured.jsonl``, written in one call. A line that was cut off is measured again.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from .. import _nearpage
from ..errors import ArgumentError
from .ingest import looked_through
from .logged import error_column, errors_of, quantities_of
from .measure import columns_of
from .pairs import Row
from .space import Settings

if TYPE_CHECKING:
    from .store import Store


class Measure(Protocol):
    """Recordings, and a way to measure settings on them."""

    def entries(self) -> Mapping[str, str]:
        """The load of each entry."""

    def name(self) -> str:
        """What is the same as long as the same settings have the same figures."""

    def rows(self, settings: Settings, entries: Sequence[str]) -> dict[str, Row]:
        """A row of figures for each of some entries."""


@dataclass
class Bundles:
    """Bundles in files, replayed twice under some rules, as ``nearpage replay rules`` does."""

    paths: Mapping[str, Path]
    model: str
    folder: Path
    threads: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._known = Known(self.folder / "measured.jsonl")
        self._prepared: dict[str, Any] = {}
        self._looks: dict[str, tuple[str, dict[str, Any]]] = {}
        self._lock = threading.Lock()

    @staticmethod
    def of(paths: Iterable[str | os.PathLike[str]], model: str, folder: str | os.PathLike[str]) -> Bundles:
        """Bundles by the names of their files, which are their loads, too."""
        named: dict[str, Path] = {}
        for path in map(Path, paths):
            name = path.name.split(".tar")[0]
            if name in named:
                raise ArgumentError(f"{path}: there are two bundles {name}, expected each name once", str(path), "each name once")
            named[name] = path
        if not named:
            raise ArgumentError("there is no bundle, expected the paths of some", "bundles", "the paths of some")
        return Bundles(named, model, Path(folder))

    def entries(self) -> Mapping[str, str]:
        return {name: name for name in self.paths}

    def name(self) -> str:
        contents = [self._look(entry)[0] for entry in sorted(self.paths)]
        return f"{self._rules()} {_hash({'contents': contents})[:16]}"

    def _rules(self) -> str:
        return f"{self.model} {_nearpage.__version__} {_nearpage.model_version(self.model)}"

    def _look(self, entry: str) -> tuple[str, dict[str, Any]]:
        """The hash of a bundle, since another one may have its name next time, and what it says of itself."""
        known = self._looks.get(entry)
        if known is None:
            known = self._looks.setdefault(entry, looked_through(self.paths[entry]))
        return known

    def rows(self, settings: Settings, entries: Sequence[str]) -> dict[str, Row]:
        with ThreadPoolExecutor(self.threads) as pool:
            return dict(zip(entries, pool.map(lambda entry: self._row(settings, entry), entries)))

    def _row(self, settings: Settings, entry: str) -> Row:
        content, identity = self._look(entry)
        key = {"entry": entry, "content": content, "settings": settings, "of": self._rules(), "passes": "both"}
        known = self._known.get(key)
        if known is None:
            with self._lock:
                prepared = self._prepared.get(entry)
            if prepared is None:
                prepared = _nearpage.Prepared.open(self.paths[entry])
                with self._lock:
                    self._prepared[entry] = prepared
            known = self._known.put(key, columns_of(prepared.measure(self.model, settings)))
        said = {name: identity[name] for name in ("name", "twin_of", "host")}
        return {"entry": entry, "load": entry, **said, **self._recorded(entry), **known}

    def _recorded(self, entry: str) -> Row:
        """The machine and kernel of a bundle, and how exactly the rules of its own kernel predict what that logged."""
        key = {"entry": entry, "content": self._look(entry)[0], "of": _nearpage.__version__, "recorded": True}
        known = self._known.get(key)
        if known is None:
            opened = _nearpage.Bundle.open(self.paths[entry])
            report = opened.replay()
            quantities = quantities_of(report.to_dict()["fidelity"]["rows"])
            errors = {error_column(figure): percent for figure, percent in errors_of(json.dumps(quantities)).items()}
            found = {"machine": "recorded", "kernel": opened.kernel, "fidelity": report.fidelity.percent, **errors}
            known = self._known.put(key, found)
        return known


@dataclass
class Stored:
    """Entries of a store. What is measured is among its results: studies of the same settings have it already."""

    store: Store
    model: str
    selectors: tuple[str, ...] = ("all",)

    def entries(self) -> Mapping[str, str]:
        hashes = self.store.select(self.selectors)
        return {hash: str(self.store.entry(hash)["load"]) for hash in hashes}

    def name(self) -> str:
        return f"{self.model} {_nearpage.__version__} {_nearpage.model_version(self.model)}"

    def rows(self, settings: Settings, entries: Sequence[str]) -> dict[str, Row]:
        from .run import run
        from .study import Study

        study = Study(entries=tuple(entries), models=(self.model,), settings=(settings,))
        return {str(row["entry"]): row for row in run(study, store=self.store).to_pylist()}


class Known:
    """Figures by keys, in a file that only grows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._by_key: dict[str, dict[str, Any]] = {}
        content = path.read_bytes() if path.exists() else b""
        for line in content.splitlines():
            try:
                of = json.loads(line)
                self._by_key[of["key"]] = of["figures"]
            except (ValueError, KeyError, TypeError):
                continue
        if content and not content.endswith(b"\n"):
            self._append(b"\n")

    def get(self, key: Mapping[str, Any]) -> dict[str, Any] | None:
        return self._by_key.get(_hash(key))

    def put(self, key: Mapping[str, Any], figures: dict[str, Any]) -> dict[str, Any]:
        line = json.dumps({"key": _hash(key), **key, "figures": figures}, sort_keys=True)
        with self._lock:
            self._append(line.encode() + b"\n")
            self._by_key[_hash(key)] = figures
        return figures

    def _append(self, content: bytes) -> None:
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(file, content)
        finally:
            os.close(file)


def _hash(key: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
