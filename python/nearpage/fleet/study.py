"""Studies as data: entries × models × settings × machines × seeds, and what to measure.

>>> from nearpage.fleet import Study
>>> Study(models=["linux-6.18", "nearpage"], settings=[{}, {"pcp.batch": 31}]).combinations
4

A study names no file: what it says, it says everywhere. A ``Task`` is one combination on one entry, and its key.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Union

from .. import _nearpage
from ..errors import StudyError
from .figures import FIGURES

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover
    import tomli as tomllib

__all__ = ["MEASURES", "Study", "StudyError", "Task", "canonical"]

#: What can be measured: the figures of ``nearpage replay rules``, or nothing, which shows what a task costs by itself.
MEASURES = ("rules", "nothing")

#: The rules of each recording's own kernel.
AUTO = "auto"

_MOST_COMBINATIONS = 1_000_000
_MAPS = ("socket", "comm", "round-robin")
_KEYS = ("entries", "models", "settings", "over", "machines", "seeds", "measure", "primary", "questions")
_MACHINE_KEYS = ("name", "short_form", "numactl", "cpus", "repeat", "map_cpus")

Settings = Mapping[str, object]
Machine = Union[str, Mapping[str, object]]


def canonical(value: object) -> str:
    """JSON with sorted keys: equal values are equal texts."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(", ", ": "))


@dataclass(frozen=True)
class Task:
    """One combination on one entry. Its key is the same wherever and whenever it is made."""

    entry: str
    model: str
    settings: str
    what_if: str
    seed: int
    measure: str
    version: str
    model_version: str

    @property
    def key(self) -> str:
        """Hash of content, parameters, version and model version, 64 hexadecimal digits."""
        return hashlib.sha256(canonical(vars(self)).encode()).hexdigest()


@dataclass(frozen=True)
class Study:
    """What is to be computed. Every argument is checked when a study is made; :class:`StudyError` names what is wrong.

    ``entries`` selects from a catalogue: ``"all"``, or beginnings of hashes (8 digits or more) and names of loads, which may have
    ``*``. ``models`` are rules by their names; ``"auto"`` are those of each recording's own kernel. ``settings`` are dicts of what :func:`nearpage.settings` lists. ``machines`` are what-ifs: ``"recorded"``, the name of
    a machine that comes along, a short form (``"--numa 2G,cpus=0-3"``), or a dict with one of ``name``, ``short_form``,
    ``numactl`` (what ``numactl -H`` printed) and ``cpus`` (of a machine with the recorded nodes), and with ``repeat`` (copies of
    the trace at once) and ``map_cpus``. Seed 0 is the likely start; others are drawn. ``primary`` is the figure that the study's verdict
    is to be about, and ``questions`` for how many verdicts have room at their level: both are named before anything runs.
    """

    entries: Sequence[str] = ("all",)
    models: Sequence[str] = ("nearpage",)
    settings: Sequence[Settings] = field(default_factory=lambda: ({},))
    machines: Sequence[Machine] = ("recorded",)
    seeds: Sequence[int] = (0,)
    measure: str = "rules"
    primary: str | None = None
    questions: int = 20

    def __post_init__(self) -> None:
        made = object.__setattr__
        made(self, "entries", _texts("entries", self.entries))
        made(self, "models", _texts("models", self.models))
        known = dict(_nearpage.models())
        for model in self.models:
            if model not in known and model != AUTO:
                raise _wrong("models", f"there is no model {model!r}", ", ".join([AUTO, *known]))
        made(self, "settings", _unique("settings", map(_settings, _sequence("settings", self.settings))))
        machines = [self.machines] if isinstance(self.machines, (str, Mapping)) else self.machines
        made(self, "machines", _unique("machines", map(_machine, _sequence("machines", machines))))
        seeds = [self.seeds] if isinstance(self.seeds, int) else _sequence("seeds", self.seeds)
        for seed in seeds:
            if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 1 << 63:
                raise _wrong("seeds", f"{seed!r} is no seed", "whole numbers from 0 on")
        made(self, "seeds", _unique("seeds", seeds))
        if self.measure not in MEASURES:
            raise _wrong("measure", f"{self.measure!r} cannot be measured", ", ".join(MEASURES))
        if self.primary is not None and self.primary not in FIGURES:
            raise _wrong("primary", f"{self.primary!r} is no figure", ", ".join(FIGURES))
        if isinstance(self.questions, bool) or not isinstance(self.questions, int) or self.questions < 1:
            raise _wrong("questions", f"{self.questions!r}", "1 or more")
        if self.combinations > _MOST_COMBINATIONS:
            raise _wrong("study", f"{self.combinations} combinations an entry", f"up to {_MOST_COMBINATIONS}")

    @property
    def combinations(self) -> int:
        """Keys an entry."""
        return len(self.models) * len(self.settings) * len(self.machines) * len(self.seeds)

    @classmethod
    def from_toml(cls, path: str | os.PathLike[str]) -> Study:
        """Reads a study from a file. Keys are those of the class, and ``[over]``: settings with all values that are combined."""
        place = os.fspath(path)
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise StudyError(f"{place}: {error}, expected a study in TOML", place, "a study in TOML") from error
        return cls.from_text(text, place)

    @classmethod
    def from_text(cls, text: str, place: str = "study") -> Study:
        """Reads a study from TOML; ``place`` is for messages."""
        try:
            content = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            line = re.search(r"line (\d+)", str(error))
            where = f"{place}:{line[1]}" if line else place
            raise StudyError(f"{where}: {error}, expected a study in TOML", where, "a study in TOML") from error
        except (RecursionError, ValueError) as error:
            # Lists in lists in lists, and numbers of thousands of digits.
            raise StudyError(f"{place}: {error}, expected a study in TOML", place, "a study in TOML") from error
        for key in content:
            if key not in _KEYS:
                where = f"{place}:{_line_of(text, key) or 1}"
                raise StudyError(f"{where}: there is no key {key!r}; keys: {', '.join(_KEYS)}", where, ", ".join(_KEYS))
        over = content.pop("over", None)
        try:
            if over is not None:
                content["settings"] = _combined(content.get("settings", [{}]), over)
            return cls(**content)
        except StudyError as error:
            # What is given as a text has no key of its own.
            lines = (_line_of(text, key) for key in (error.key, error.place) if key)
            where = f"{place}:{next(filter(None, lines), 1)}" if error.key else place
            raise StudyError(f"{where}: {error}", where, error.expected, error.key) from None
        except (RecursionError, ValueError) as error:
            # Numbers that are too long to be shown.
            raise StudyError(f"{place}: {error}, expected a study in TOML", place, "a study in TOML") from error

    def to_dict(self) -> dict[str, Any]:
        """The study as JSON has it."""
        return json.loads(canonical({name: getattr(self, name) for name in self.__dataclass_fields__}))  # type: ignore[no-any-return]

    def tasks(self, entries: Iterable[str]) -> list[Task]:
        """The tasks on some entries, by their hashes: those of one entry and machine come one after the other."""
        version, models = _nearpage.__version__, {name: _nearpage.model_version(name) for name in self.models}
        settings = [canonical(of) for of in self.settings]
        machines = [canonical(of) if of else "" for of in self.machines]
        return [
            Task(entry, model, of, what_if, seed, self.measure, version, models[model])
            for entry, what_if, model, of, seed in itertools.product(
                entries, machines, self.models, settings, self.seeds
            )
        ]


def _wrong(key: str, problem: str, expected: str, at: str | None = None) -> StudyError:
    return StudyError(f"{key}: {problem}, expected {expected}", key, expected, at or key)


def _line_of(text: str, key: str) -> int | None:
    """The line of a key: TOML's reader tells none. None if it is not there."""
    name = re.escape(key)
    found = re.search(rf"""^\s*(?:\[\[?\s*)?["']?{name}["']?\s*(?:[=.\]]|$)|["'\s,{{]{name}["'\s]*=""", text, re.MULTILINE)
    return text.count("\n", 0, found.start() + len(found[0]) - len(found[0].lstrip())) + 1 if found else None


def _sequence(key: str, values: object) -> Sequence[Any]:
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        raise _wrong(key, f"{values!r} is no list", "a list")
    values = list(values)
    if not values:
        raise _wrong(key, "there is none", "one or more")
    return values


def _texts(key: str, values: object) -> tuple[str, ...]:
    values = [values] if isinstance(values, str) else _sequence(key, values)
    for value in values:
        if not isinstance(value, str) or not value:
            raise _wrong(key, f"{value!r} is no name", "names")
    return _unique(key, values)


def _unique(key: str, values: Iterable[Any]) -> tuple[Any, ...]:
    """What is there twice would be computed once: it is a mistake."""
    seen: dict[str, Any] = {}
    for value in values:
        text = canonical(value)
        if text in seen:
            raise _wrong(key, f"{text} is there twice", "each once")
        seen[text] = value
    return tuple(seen.values())


def _settings(given: object) -> dict[str, object]:
    """Settings with values as they are compared: ``"on"`` is ``True``, ``"31"`` is 31."""
    if not isinstance(given, Mapping):
        raise _wrong("settings", f"{given!r} is no table", "tables of settings")
    settings: dict[str, object] = {}
    for name, value in _flat(given):
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            value = {"on": True, "off": False}.get(str(value), value)
            if isinstance(value, str) and value.isascii() and value.isdigit():
                value = int(value)
        if not isinstance(value, (bool, int, float, str)):
            raise _wrong("settings", f"{name}: {value!r} is no value", "a number, a text, or true and false", name)
        settings[name] = value
    try:
        _nearpage.check_settings(settings)
    except ValueError as error:
        name = next((name for name in settings if str(error).startswith(f"{name}=")), "settings")
        expected = getattr(error, "expected", None)
        raise StudyError(f"settings: {error}", "settings", expected, name) from None
    return dict(sorted(settings.items()))


def _flat(given: Mapping[Any, object], before: str = "") -> Iterable[tuple[str, object]]:
    """``pcp.batch = 31`` without quotes is a table in TOML."""
    for name, value in given.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def _combined(settings: object, over: object) -> list[dict[str, object]]:
    if not isinstance(over, Mapping):
        raise _wrong("over", f"{over!r} is no table", "settings with lists of values")
    keys, lists = [], []
    for name, values in _flat(over):
        if not isinstance(values, list) or not values:
            raise _wrong("over", f"{name} has {values!r}", "a list of values", name)
        keys.append(name)
        lists.append(values)
    combinations = [dict(zip(keys, values)) for values in itertools.islice(itertools.product(*lists), _MOST_COMBINATIONS + 1)]
    given = _sequence("settings", settings)
    for one in given:
        if not isinstance(one, Mapping):
            raise _wrong("settings", f"{one!r} is no table", "tables of settings")
    return [{**dict(_flat(one)), **combination} for one in given for combination in combinations]


def _machine(given: object) -> dict[str, object]:
    """A what-if as it is compared; empty for the recorded machine."""
    if isinstance(given, str):
        text = given.strip()
        if text in ("recorded", ""):
            return {}
        given = {"short_form": given} if text.startswith("--") else {"name": text}
    if not isinstance(given, Mapping):
        raise _wrong("machines", f"{given!r} is no machine", "a name, a short form, or a table")
    if not given:
        return {}
    for key in given:
        if key not in _MACHINE_KEYS:
            raise _wrong("machines", f"there is no key {key!r}", ", ".join(_MACHINE_KEYS), str(key))
    sources = [key for key in _MACHINE_KEYS[:4] if key in given]
    if len(sources) != 1:
        raise _wrong("machines", f"{dict(given)!r} names {len(sources)} machines", "one of name, short_form, numactl and cpus")
    machine = {"map_cpus": "socket", "repeat": 1, **given}
    for key in ("cpus", "repeat"):
        count = machine.get(key, 1)
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= 1 << 16:
            raise _wrong("machines", f"{key}: {count!r}", "1 to 65536", key)
    if machine["map_cpus"] not in _MAPS:
        raise _wrong("machines", f"map_cpus: {machine['map_cpus']!r}", ", ".join(_MAPS), "map_cpus")
    source = sources[0]
    if source != "cpus":
        text = machine[source]
        if not isinstance(text, str):
            raise _wrong("machines", f"{source}: {text!r}", "a text", source)
        try:
            _nearpage.what_if_machine(source, text)
        except Exception as error:
            expected = getattr(error, "expected", None)
            raise StudyError(f"machines: {error}", "machines", expected, source) from None
    return dict(sorted(machine.items()))
