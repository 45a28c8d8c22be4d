"""Answers about variants: paired differences with intervals, corrected for how many are compared.

>>> rows = [
...     {"entry": f"e{n}", "load": f"load {n}", "machine": "m", "kernel": "6.12", "model": "nearpage", "seed": 0, "what_if": "",
...      "settings": settings, "holds": holds * (100 + 7 * n)}
...     for n in range(12) for settings, holds in [("{}", 2), ('{"pcp.batch": 31}', 3 + n % 3 / 10)]
... ]
>>> [answer] = compare(rows, figures=["holds"]).answers
>>> answer.verdict, round(answer.ratio, 2), answer.loads
('worse', 1.49, 12)

A difference is told where its interval has no room for none. The intervals of all figures, variants and groups of one comparison hold at
once: looking at forty settings finds no winner by chance more often than looking at one. What cannot be told is an answer, too.

Ratios are ``(n + 32) / (baseline + 32)``, the mean over loads is geometric. An answer is about loads like those that were compared; a
replay of one load has no noise, and says nothing about another.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from ..errors import ArgumentError
from .figures import MAIN, Figure, named
from .pairs import Pair, Row, Variant, baseline_of, paired, ratio, rows_of
from .resample import Means, means

Verdict = Literal["better", "worse", "no difference can be told", "the same", "too few"]

#: What results may be grouped by.
GROUPS = ("load", "machine", "kernel", "model_version", "version")


@dataclass(frozen=True)
class Unit:
    """What a variant came to in a load (or in an entry)."""

    name: str
    machine: str
    entries: tuple[str, ...]
    pairs: int
    #: Means over its pairs.
    baseline: float
    value: float
    #: The geometric mean of the pairs' ratios.
    ratio: float

    @property
    def difference(self) -> float:
        return self.value - self.baseline


@dataclass(frozen=True)
class Answer:
    """What is known of a figure of a variant against the baseline, over the loads of a group."""

    figure: Figure
    variant: Variant
    #: What the loads have in common: a value for each column that was grouped by.
    group: dict[str, str]
    units: tuple[Unit, ...] = field(repr=False)
    #: The geometric mean over loads, and the interval that holds together with all others; ``None`` with too few loads.
    ratio: float
    low: float | None
    high: float | None
    #: How probable a mean this far from 1 is by chance: by itself, and anywhere in the comparison.
    p_alone: float | None
    p: float | None
    verdict: Verdict

    @property
    def loads(self) -> int:
        return len(self.units)

    def badness(self, unit: Unit) -> float:
        """How much worse a load is, as a logarithm; below 0 it is better."""
        return math.log(unit.ratio) * (1 if self.figure.is_less_better else -1)

    def __str__(self) -> str:
        where = "".join(f", {key} {value}" for key, value in self.group.items())
        return f"{self.variant}{where}: {self.figure.label} x{self.ratio:.3f} ({room(self)}) over {self.loads} loads: {self.verdict}"


@dataclass(frozen=True)
class Comparison:
    """All answers of some results."""

    baseline: Variant
    unit: Literal["load", "entry"]
    confidence: float
    seed: int
    answers: list[Answer]
    #: Rows without a partner, which are in no answer.
    unpaired: int

    def told(self) -> list[Answer]:
        """The answers with a difference."""
        return [answer for answer in self.answers if answer.verdict in ("better", "worse")]

    def worst(self, most: int = 20) -> list[tuple[Answer, Unit]]:
        """The loads that a variant makes worse, the worst first, whether or not a difference is told over all loads."""
        found = [(answer, unit) for answer in self.answers for unit in answer.units if answer.badness(unit) > 1e-9]
        return sorted(found, key=lambda of: (-of[0].badness(of[1]), str(of[0].variant), of[1].name))[:most]

    def to_arrow(self) -> Any:
        """A ``pyarrow.Table``, a row an answer."""
        import pyarrow

        keys = {key: pyarrow.array([of.group[key] for of in self.answers], pyarrow.string()) for key in self._groups()}
        text, real = pyarrow.string(), pyarrow.float64()
        columns: dict[str, tuple[list[Any], Any]] = {
            "figure": ([of.figure.name for of in self.answers], text),
            "model": ([of.variant.model for of in self.answers], text),
            "settings": ([of.variant.settings for of in self.answers], text),
            "what_if": ([of.variant.what_if for of in self.answers], text),
            "loads": ([of.loads for of in self.answers], pyarrow.int64()),
            "ratio": ([of.ratio for of in self.answers], real),
            "low": ([of.low for of in self.answers], real),
            "high": ([of.high for of in self.answers], real),
            "p_alone": ([of.p_alone for of in self.answers], real),
            "p": ([of.p for of in self.answers], real),
            "verdict": ([of.verdict for of in self.answers], text),
        }
        return pyarrow.table(keys | {name: pyarrow.array(*column) for name, column in columns.items()})

    def units_to_arrow(self) -> Any:
        """A ``pyarrow.Table``, a row for each load of each answer."""
        import pyarrow

        rows = [
            {
                "figure": answer.figure.name, "variant": str(answer.variant), self.unit: unit.name, "machine": unit.machine,
                "pairs": unit.pairs, "baseline": unit.baseline, "value": unit.value, "ratio": unit.ratio,
            }
            for answer in self.answers for unit in answer.units
        ]  # fmt: skip
        return pyarrow.Table.from_pylist(rows)

    def _groups(self) -> list[str]:
        return list(self.answers[0].group) if self.answers else []

    def __str__(self) -> str:
        return "\n".join(map(str, self.answers))

    def _repr_html_(self) -> str:
        body = "".join(
            f"<tr><td>{html.escape(str(of.variant))}</td><td>{html.escape(' '.join(of.group.values()))}</td><td>{of.figure.label}</td>"
            f"<td>{of.ratio:.3f}</td><td>{room(of)}</td><td>{of.loads}</td><td>{of.verdict}</td></tr>"
            for of in self.answers
        )
        head = "".join(f"<th>{name}</th>" for name in ("variant", "group", "figure", "ratio", "interval", "loads", "verdict"))
        return f"<p>against {html.escape(str(self.baseline))}</p><table><tr>{head}</tr>{body}</table>"


def room(answer: Answer) -> str:
    """The interval in words."""
    if answer.low is None or answer.high is None:
        return "too few loads"
    return f"{_shown(answer.low)} to {_shown(answer.high)}"


def compare(
    results: object,
    *,
    baseline: Variant | str | None = None,
    figures: Iterable[str] = MAIN,
    by: Sequence[str] = (),
    confidence: float = 0.95,
    resamples: int = 9999,
    seed: int = 0,
) -> Comparison:
    """Compares all variants of some results with one of them.

    ``baseline`` is a variant, the name of rules (with their own settings on the recorded machine), or found if only one can be it.
    ``by`` groups: some of ``machine``, ``kernel``, ``load``. Answers are about loads; with ``load`` among the groups, about recordings
    of it. ``seed`` makes the resamples, so that the same results give the same answers.

    Raises :class:`nearpage.ArgumentError`.
    """
    rows = rows_of(results)
    if not 0.5 <= confidence < 1:
        raise ArgumentError(f"confidence={confidence}, expected 0.5 to below 1", "confidence", "0.5 to below 1")
    wrong = [name for name in by if name not in GROUPS]
    if wrong:
        accepted = f"some of {', '.join(GROUPS)}"
        raise ArgumentError(f"by: {wrong[0]!r} is no group, expected {accepted}", "by", accepted)
    base = baseline_of(rows, baseline)
    unit: Literal["load", "entry"] = "entry" if "load" in by else "load"
    pairs = paired(rows, base)
    asked = [
        _Asked(figure, variant, dict(zip(by, group)), _units(figure, members, unit))
        for figure in named(figures)
        for variant, of_variant in pairs.items()
        for group, members in _grouped(of_variant, by).items()
    ]
    asked = [of for of in asked if of.units]
    known = _judged(asked, confidence, resamples, seed)
    answers = [_answer(of, known, at) for at, of in enumerate(asked)]
    count = sum(map(len, pairs.values()))
    return Comparison(base, unit, confidence, seed, answers, sum(Variant.of(row) != base for row in rows) - count)


@dataclass(frozen=True)
class _Asked:
    figure: Figure
    variant: Variant
    group: dict[str, str]
    units: tuple[Unit, ...]


def _grouped(pairs: Iterable[Pair], by: Sequence[str]) -> dict[tuple[str, ...], list[Pair]]:
    groups: dict[tuple[str, ...], list[Pair]] = {}
    for pair in pairs:
        groups.setdefault(tuple(str(pair.row.get(name, "")) for name in by), []).append(pair)
    return dict(sorted(groups.items()))


def _units(figure: Figure, pairs: Iterable[Pair], unit: str) -> tuple[Unit, ...]:
    by_unit: dict[str, list[tuple[Row, float, float]]] = {}
    for pair in pairs:
        values = pair.values(figure)
        if values is not None:
            by_unit.setdefault(str(pair.row[unit]), []).append((pair.row, *values))
    units = []
    for name, of in sorted(by_unit.items()):
        machines = sorted({str(row["machine"]) for row, _, _ in of})
        logs = [math.log(ratio(value, base)) for _, value, base in of]
        units.append(
            Unit(
                name, ", ".join(machines), tuple(sorted({str(row["entry"]) for row, _, _ in of})), len(of),
                math.fsum(base for _, _, base in of) / len(of), math.fsum(value for _, value, _ in of) / len(of),
                math.exp(math.fsum(logs) / len(logs)),
            )
        )  # fmt: skip
    return tuple(units)


def _judged(asked: Sequence[_Asked], confidence: float, resamples: int, seed: int) -> Means:
    names = sorted({unit.name for of in asked for unit in of.units})
    at = {name: place for place, name in enumerate(names)}
    logs = np.full((len(names), len(asked)), np.nan)
    for column, of in enumerate(asked):
        for unit in of.units:
            logs[at[unit.name], column] = math.log(unit.ratio)
    return means(logs, confidence=confidence, resamples=resamples, seed=seed)


def _answer(of: _Asked, known: Means, at: int) -> Answer:
    mean, low, high = float(known.means[at]), float(known.low[at]), float(known.high[at])
    verdict: Verdict
    if all(unit.ratio == 1.0 for unit in of.units) and len(of.units) > 1:
        verdict = "the same"
    elif math.isnan(low):
        verdict = "too few"
    elif low <= 0.0 <= high:
        verdict = "no difference can be told"
    else:
        verdict = "better" if (mean < 0) == of.figure.is_less_better else "worse"
    is_few = math.isnan(low)
    return Answer(
        of.figure, of.variant, of.group, of.units, math.exp(mean),
        None if is_few else _exp(low), None if is_few else _exp(high),
        None if is_few else float(known.alone[at]), None if is_few else float(known.corrected[at]), verdict,
    )  # fmt: skip


def _exp(logarithm: float) -> float:
    return math.exp(logarithm) if logarithm < 700.0 else math.inf


def _shown(bound: float) -> str:
    """A bound that says nothing is not shown with its digits."""
    return "0" if bound < 1e-4 else "any" if bound > 1e4 else f"{bound:.3f}"
