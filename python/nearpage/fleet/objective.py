"""What tuning is to reach: a figure, and limits of others.

>>> Limit.parse("kept_pages_mean <= today"), Limit.parse("longest_hold_operations<=500").bound
(Limit(figure='kept_pages_mean', is_most=True, bound=1.0, is_of_today=True), 500.0)

A limit of *today* is about the mean over units: memory that one load keeps more of and another less of is the same memory. A limit in
numbers holds in every recording: the longest hold is one hold somewhere.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..errors import ArgumentError
from .figures import FIGURES, Figure, named
from .pairs import Pair, Row
from .units import Kind, units_of

_LIMIT = re.compile(r"\s*(\w+)\s*(<=|>=|≤|≥)\s*(today(?:'s|’s)?)?\s*(?:\*?\s*(\d+(?:\.\d+)?))?\s*")
ACCEPTED = "FIGURE<=NUMBER, FIGURE<=today or FIGURE<=today*1.1, or with >="


@dataclass(frozen=True)
class Limit:
    """A bound of a figure: in its unit, or as a factor of today's."""

    figure: str
    is_most: bool
    bound: float
    is_of_today: bool

    @staticmethod
    def parse(text: str) -> Limit:
        found = _LIMIT.fullmatch(text)
        if found is None or (found[3] is None and found[4] is None):
            raise ArgumentError(f"{text!r} is no limit, expected {ACCEPTED}", "limit", ACCEPTED)
        [figure] = named([found[1]])
        return Limit(figure.name, found[2] in ("<=", "≤"), float(found[4] or 1.0), found[3] is not None)

    def excess(self, values: Mapping[str, Row], today: Mapping[str, Row], kind: Kind) -> float:
        """How far rows (by entry) are beyond it, as a logarithm; 0 and less is within it."""
        sign = 1.0 if self.is_most else -1.0
        if self.is_of_today:
            return sign * (_mean(_logs(self.figure, values, today, kind)) - math.log(self.bound))
        beyond = [sign * math.log((_value(self.figure, row) + 1.0) / (self.bound + 1.0)) for row in values.values()]
        return max(beyond, default=math.nan)

    def __str__(self) -> str:
        bound = f"today's x {self.bound:g}" if self.is_of_today and self.bound != 1 else "today's" if self.is_of_today else f"{self.bound:g}"
        return f"{FIGURES[self.figure].label} {'at most' if self.is_most else 'at least'} {bound}"


@dataclass(frozen=True)
class Objective:
    """The fewest of a figure (the most, if more is better), within limits."""

    figure: str
    limits: tuple[Limit, ...] = ()

    @staticmethod
    def of(figure: str, limits: Sequence[Limit | str] = ()) -> Objective:
        [known] = named([figure])
        return Objective(known.name, tuple(Limit.parse(limit) if isinstance(limit, str) else limit for limit in limits))

    @property
    def of_figure(self) -> Figure:
        return FIGURES[self.figure]

    def figures(self) -> list[str]:
        """Of the objective and its limits."""
        return list(dict.fromkeys([self.figure, *(limit.figure for limit in self.limits)]))

    def cost(self, values: Mapping[str, Row], today: Mapping[str, Row], kind: Kind) -> float:
        """The mean over units of the logarithm of the ratio to today's; less is better, below 0 better than today."""
        mean = _mean(_logs(self.figure, values, today, kind))
        return mean if self.of_figure.is_less_better else -mean

    def ratio(self, cost: float) -> float:
        """The ratio to today's that a cost is of."""
        return math.exp(cost if self.of_figure.is_less_better else -cost)

    def excesses(self, values: Mapping[str, Row], today: Mapping[str, Row], kind: Kind) -> list[float]:
        """Of each limit."""
        return [limit.excess(values, today, kind) for limit in self.limits]

    def holds(self, values: Mapping[str, Row], today: Mapping[str, Row], kind: Kind) -> bool:
        """Whether all limits hold. A limit of today's has room for rounding."""
        return all(excess <= 1e-9 for excess in self.excesses(values, today, kind))

    def __str__(self) -> str:
        which = "fewest" if self.of_figure.is_less_better else "most"
        return "; ".join([f"{which} {self.of_figure.label}", *map(str, self.limits)])


def _value(figure: str, row: Row) -> float:
    value = row.get(figure)
    if value is None:
        raise ArgumentError(f"{figure} was not measured of {row.get('entry')}, expected results with it", "results", "results with it")
    return float(value)


def _logs(figure: str, values: Mapping[str, Row], today: Mapping[str, Row], kind: Kind) -> list[float]:
    """For each unit the logarithm of the ratio to today's, as answers have it. ``values`` and ``today`` are rows by entry."""
    for entry, row in values.items():
        _value(figure, row), _value(figure, today[entry])
    pairs = [Pair(row, today[entry]) for entry, row in values.items()]
    return [math.log(unit.ratio) for unit in units_of(FIGURES[figure], pairs, kind, today.values(), None)]


def _mean(logs: Sequence[float]) -> float:
    """Nothing has a mean of 0."""
    return math.fsum(logs) / len(logs) if logs else 0.0
