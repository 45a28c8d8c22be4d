"""Pareto fronts: the variants that no other beats in all of some figures.

>>> front([("a", [1.0, 5.0]), ("b", [2.0, 2.0]), ("c", [3.0, 3.0])])
['a', 'b']
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from .answers import Comparison
from .figures import Figure
from .pairs import Variant

Name = TypeVar("Name")


def front(points: Iterable[tuple[Name, Sequence[float]]]) -> list[Name]:
    """The names of the points that no other dominates. Less is better in every coordinate. Points that are equal in all stay together;
    a point with a ``nan`` is not comparable, and stays."""
    all_points = list(points)
    return [name for name, values in all_points if not any(dominates(other, values) for _, other in all_points)]


def dominates(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether ``one`` is as good everywhere and better somewhere."""
    return all(a <= b for a, b in zip(one, other)) and any(a < b for a, b in zip(one, other))


@dataclass(frozen=True)
class Candidate:
    """A variant with its ratios to the baseline, in the order of the front's figures."""

    variant: Variant
    ratios: tuple[float, ...]
    is_on_front: bool
    #: Whether another variant beats it by more than the intervals of both leave room for. Who is off the front but not beaten
    #: surely may be as good.
    is_beaten_surely: bool


@dataclass(frozen=True)
class Front:
    """All variants of a comparison, the baseline included, and which of them are best."""

    figures: tuple[Figure, ...]
    candidates: list[Candidate]

    def best(self) -> list[Candidate]:
        return [candidate for candidate in self.candidates if candidate.is_on_front]


def of_comparison(comparison: Comparison, figures: Sequence[str] | None = None) -> Front:
    """The front of a comparison over all loads; answers of groups do not enter."""
    answers = [answer for answer in comparison.answers if not answer.group]
    known = list(dict.fromkeys(answer.figure for answer in answers))
    chosen = [figure for figure in known if figures is None or figure.name in figures]
    by_variant: dict[Variant, dict[str, tuple[float, float, float]]] = {}
    for answer in answers:
        low, high = (0.0, math.inf) if answer.low is None or answer.high is None else (answer.low, answer.high)
        values = (answer.ratio, low, high)
        if not answer.figure.is_less_better:
            values = (1 / answer.ratio, 1 / high if high else math.inf, 1 / low if low else math.inf)
        by_variant.setdefault(answer.variant, {})[answer.figure.name] = values
    by_variant[comparison.baseline] = {figure.name: (1.0, 1.0, 1.0) for figure in chosen}
    of = {
        variant: [values[figure.name] for figure in chosen]
        for variant, values in by_variant.items()
        if all(figure.name in values for figure in chosen)
    }
    best = set(front((variant, [value for value, _, _ in values]) for variant, values in of.items()))
    candidates = [
        Candidate(variant, tuple(value for value, _, _ in values), variant in best, _beaten(variant, of))
        for variant, values in sorted(of.items())
    ]
    return Front(tuple(chosen), candidates)


def _beaten(variant: Variant, of: dict[Variant, list[tuple[float, float, float]]]) -> bool:
    """Whether another is surely better in one figure, and surely no worse in all others."""
    own = of[variant]

    def beats(other: list[tuple[float, float, float]]) -> bool:
        pairs = list(zip(other, own))
        return all(a[2] <= b[1] or a == b for a, b in pairs) and any(a[2] < b[1] for a, b in pairs)

    return any(beats(values) for name, values in of.items() if name != variant)
