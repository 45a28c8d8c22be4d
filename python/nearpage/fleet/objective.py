"""What tuning is to reach: a figure, and limits of others.

>>> Limit.parse("kept_pages_mean <= today"), Limit.parse("longest_hold_operations<=500").bound
(Limit(figure='kept_pages_mean', is_most=True, bound=1.0, is_of_today=True), 500.0)

A limit of *today* is about the mean over loads: memory that one load keeps more of and another less of is the same memory. A limit in
numbers holds in every load: the longest hold is one hold somewhere.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..errors import ArgumentError
from .figures import FIGURES, Figure, named
from .pairs import Row, ratio

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

    def excess(self, values: Mapping[str, Row], today: Mapping[str, Row]) -> float:
        """How far rows (by entry) are beyond it, as a logarithm; 0 and less is within it."""
        sign = 1.0 if self.is_most else -1.0
        if self.is_of_today:
            return sign * (mean(logs_by_load(self.figure, values, today)) - math.log(self.bound))
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

    def logs(self, values: Mapping[str, Row], today: Mapping[str, Row]) -> dict[str, float]:
        """For each load the logarithm of the ratio to today's; less is better, below 0 better than today."""
        sign = 1.0 if self.of_figure.is_less_better else -1.0
        return {load: sign * log for load, log in logs_by_load(self.figure, values, today).items()}

    def cost(self, values: Mapping[str, Row], today: Mapping[str, Row]) -> float:
        """The mean of these over loads."""
        return mean(self.logs(values, today))

    def excesses(self, values: Mapping[str, Row], today: Mapping[str, Row]) -> list[float]:
        """Of each limit."""
        return [limit.excess(values, today) for limit in self.limits]

    def holds(self, values: Mapping[str, Row], today: Mapping[str, Row]) -> bool:
        """Whether all limits hold. A limit of today's has room for rounding."""
        return all(excess <= 1e-9 for excess in self.excesses(values, today))

    def __str__(self) -> str:
        kind = "fewest" if self.of_figure.is_less_better else "most"
        return "; ".join([f"{kind} {self.of_figure.label}", *map(str, self.limits)])


def _value(figure: str, row: Row) -> float:
    value = row.get(figure)
    if value is None:
        raise ArgumentError(f"{figure} was not measured of {row.get('entry')}, expected results with it", "results", "results with it")
    return float(value)


def logs_by_load(figure: str, values: Mapping[str, Row], today: Mapping[str, Row]) -> dict[str, float]:
    """For each load the mean, over its entries, of logarithms of ratios to today's. ``values`` and ``today`` are rows by entry."""
    by_load: dict[str, list[float]] = {}
    for entry, row in values.items():
        by_load.setdefault(str(row["load"]), []).append(math.log(ratio(_value(figure, row), _value(figure, today[entry]))))
    return {load: math.fsum(logs) / len(logs) for load, logs in sorted(by_load.items())}


def mean(logs: Mapping[str, float]) -> float:
    """Over loads; nothing has a mean of 0."""
    return math.fsum(logs.values()) / len(logs) if logs else 0.0
