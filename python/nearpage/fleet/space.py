"""Where tuning searches: settings with the values that they may have. Each may also stay as the rules have it.

>>> space = Space.parse(["pcp.batch=8..512", "pcp.free_high=on,off"])
>>> space.of["pcp.batch"], space.of["pcp.free_high"]
(Whole(least=8, most=512), OneOf(values=(True, False)))
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Union

from ..errors import ArgumentError

Value = Union[bool, int, str]
Settings = dict[str, Value]


@dataclass(frozen=True)
class Whole:
    """Whole numbers of a range, ends included. One of more than a factor of 16 is searched by its logarithm."""

    least: int
    most: int

    def suggest(self, trial: Any, key: str) -> Value:
        return int(trial.suggest_int(key, self.least, self.most, log=self.least > 0 and self.most > 16 * self.least))


@dataclass(frozen=True)
class OneOf:
    """Some values."""

    values: tuple[Value, ...]

    def suggest(self, trial: Any, key: str) -> Value:
        chosen: Value = trial.suggest_categorical(key, list(self.values))
        return chosen


#: What Linux's rules have: sizes of refills, drains and pagesets, and whether they follow the load.
USUAL: Mapping[str, Whole | OneOf] = {
    "pcp.batch": Whole(8, 512),
    "pcp.batch_scale_max": Whole(0, 6),
    "pcp.high_min": Whole(64, 16384),
    "pcp.high_max": Whole(256, 65536),
    "pcp.tunes_high": OneOf((True, False)),
}


@dataclass(frozen=True)
class Space:
    """Settings and what they may be."""

    of: Mapping[str, Whole | OneOf]

    @staticmethod
    def parse(texts: Iterable[str]) -> Space:
        """Of ``KEY=LEAST..MOST`` and ``KEY=A,B``; none are :data:`USUAL`."""
        of: dict[str, Whole | OneOf] = {}
        for text in texts:
            key, equals, values = text.partition("=")
            if not equals or not key.strip() or key.strip() in of:
                raise _wrong(text, "is there twice" if key.strip() in of else "is no setting with values")
            of[key.strip()] = _values(text, values)
        return Space(of or USUAL)

    def suggest(self, trial: Any) -> Settings:
        """The settings of a trial. Whether a setting is made is a choice by itself."""
        settings: Settings = {}
        for key, values in self.of.items():
            if trial.suggest_categorical(f"{key} is set", [False, True]):
                settings[key] = values.suggest(trial, key)
        return settings

    def own(self) -> dict[str, Any]:
        """The trial that sets nothing."""
        return {f"{key} is set": False for key in self.of}


def _values(text: str, values: str) -> Whole | OneOf:
    least, dots, most = values.partition("..")
    if dots:
        if not (least.strip().isdigit() and most.strip().isdigit() and int(least) < int(most)):
            raise _wrong(text, "is no range")
        return Whole(int(least), int(most))
    parts = [part.strip() for part in values.split(",")]
    if not all(parts):
        raise _wrong(text, "has an empty value")
    return OneOf(tuple({"on": True, "off": False}.get(part, int(part) if part.isdigit() else part) for part in parts))


def _wrong(text: str, problem: str) -> ArgumentError:
    accepted = "KEY=LEAST..MOST or KEY=A,B"
    return ArgumentError(f"{text!r} {problem}, expected {accepted}", "over", accepted)
