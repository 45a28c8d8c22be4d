"""Answers about variants: paired differences over units of a fleet, what is told of them, and how far the model is to be believed.

>>> rows = [
...     {"entry": f"e{n}", "load": f"load {n}", "machine": "m", "kernel": "6.12", "model": "nearpage", "seed": 0, "what_if": "",
...      "settings": settings, "holds": holds * (100 + 7 * n)}
...     for n in range(12) for settings, holds in [("{}", 2), ('{"pcp.batch": 31}', 3 + n % 3 / 10)]
... ]
>>> [answer] = compare(rows, figures=["holds"]).answers
>>> answer.verdict, round(answer.ratio, 2), answer.loads
('worse', 1.49, 12)

A verdict hangs on its own question alone: on no other figure, variant or group, and on no seed. It is told at a level that leaves room for
``questions`` of them: 20 such questions together tell a difference by chance in at most 5 % of fleets. So nobody gains by asking less, and
who asks more is told. What cannot be told is an answer, too.

Ratios are ``(n + 32) / (baseline + 32)``, the mean over units is geometric. A replay of one load has no noise, and says nothing about
another: answers are about units like those that were compared.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from .. import frames
from ..errors import ArgumentError
from .figures import FIGURES, MAIN, Figure, named
from .judge import Judged, family, judge, least_units, unseen_share, worse_share
from .pairs import Pair, Row, Variant, baseline_of, paired, rows_of
from .units import Kind, Unit, kind_of, units_of
from .words import many

if TYPE_CHECKING:
    import pandas
    import pyarrow

__all__ = ["GATE", "GROUPS", "QUESTIONS", "Answer", "Comparison", "Unit", "Verdict", "compare", "room"]

Verdict = Literal[
    "better", "worse", "perhaps better", "perhaps worse", "within the model's error", "no difference can be told", "the same", "too few"
]

#: What results may be grouped by.
GROUPS = ("load", "machine", "kernel", "host", "service", "model_version", "version")
#: Questions that verdicts leave room for, unless a study says another number.
QUESTIONS = 20
#: The fidelity below which a recording is left out, in percent, unless another is asked for.
GATE = 80.0
#: Of normal errors so many standard deviations hold 95 %.
_SIGMAS = 1.96


@dataclass(frozen=True)
class Answer:
    """What is known of a figure of a variant against the baseline, over the units of a group."""

    figure: Figure
    variant: Variant
    #: What the units have in common: a value for each column that was grouped by.
    group: dict[str, str]
    units: tuple[Unit, ...] = field(repr=False)
    #: The geometric mean over units.
    ratio: float
    #: Its interval: for units like these, the model's error and the start together. ``None`` with too few units.
    low: float | None
    high: float | None
    #: The same for the units alone.
    loads_low: float | None
    loads_high: float | None
    #: The typical unit (the pseudo-median of units), and its interval.
    typical: float
    typical_low: float | None
    typical_high: float | None
    #: How probable ranks this far to one side are by chance: by itself, and anywhere in the comparison.
    p_alone: float | None
    p: float | None
    verdict: Verdict
    #: The standard error of the model, as a factor, from what the recordings' kernels logged of this figure; ``None`` where they logged
    #: nothing of it: then it is unknown, and not in the interval.
    model_error: float | None
    #: The same of the start: from the passes' distance. ``None`` without a first pass.
    start_error: float | None
    #: Units made worse by more than :attr:`worse_by` percent, and the interval of their share in fleets like this.
    worse: int
    worse_low: float
    worse_high: float
    worse_by: float
    #: The part of all units that may be of a kind of which none is here.
    unseen: float

    @property
    def loads(self) -> int:
        """How many units."""
        return len(self.units)

    @property
    def short(self) -> int:
        """Units whose recordings are shorter than the effect of their start."""
        return sum(unit.is_short for unit in self.units)

    def badness(self, unit: Unit) -> float:
        """How much worse a unit is, as a logarithm; below 0 it is better."""
        return math.log(unit.ratio) * (1 if self.figure.is_less_better else -1)

    def __str__(self) -> str:
        where = "".join(f", {key} {value}" for key, value in self.group.items())
        return f"{self.variant}{where}: {self.figure.label} x{self.ratio:.3f} ({room(self)}) over {self.loads}: {self.verdict}; {self.beside()}"

    def beside(self) -> str:
        """What an interval does not say: tails, what was not seen, the model, the start."""
        said = [f"{self.worse} of {self.loads} worse by more than {self.worse_by:g} % ({_percent(self.worse_low)} to {_percent(self.worse_high)})"]
        said.append(f"up to {_percent(self.unseen)} of others may behave otherwise")
        said.append("the model's error is unknown" if self.model_error is None else f"model x{self.model_error:.2f}")
        if self.short:
            said.append(f"{self.short} shorter than the effect of their start")
        return "; ".join(said)


@dataclass(frozen=True)
class Comparison:
    """All answers of some results."""

    baseline: Variant
    #: What answers are about.
    unit: Kind
    confidence: float
    seed: int
    answers: list[Answer]
    #: Rows without a partner, which are in no answer.
    unpaired: int
    #: The figure that the verdict of the study is about.
    primary: str
    #: Questions that verdicts leave room for.
    questions: int
    #: The fidelity in percent below which recordings are left out, and these: their loads, and their fidelity.
    gate: float
    left_out: tuple[tuple[str, float], ...]
    #: Recordings that nothing is known of how exactly they are predicted.
    unproven: int
    #: Twins, which are their recordings' units.
    twins: int
    #: Variants that are the same in every figure of every recording.
    equal: tuple[tuple[Variant, ...], ...]

    def told(self) -> list[Answer]:
        """The answers with a difference."""
        return [answer for answer in self.answers if answer.verdict in ("better", "worse")]

    def of_primary(self) -> list[Answer]:
        """The answers about the primary figure."""
        return [answer for answer in self.answers if answer.figure.name == self.primary]

    @property
    def by_chance(self) -> float:
        """Differences that are told by chance at most, in the mean over fleets, if there is none anywhere."""
        return (1.0 - self.confidence) * len(self.answers) / self.questions

    def worst(self, most: int = 20) -> list[tuple[Answer, Unit]]:
        """The units that a variant makes worse, the worst first, whether or not a difference is told over all."""
        found = [(answer, unit) for answer in self.answers for unit in answer.units if answer.badness(unit) > 1e-9]
        return sorted(found, key=lambda of: (-of[0].badness(of[1]), str(of[0].variant), of[1].name))[:most]

    def said(self) -> list[str]:
        """What a reader has to know beside the answers, in sentences."""
        said = []
        if not self.answers:
            said.append("There is nothing to compare: no recording has results of the baseline and of another variant.")
        said += left_out_said(self.left_out, self.gate)
        if self.unproven:
            said.append(f"Of {many(self.unproven, 'recording')} nothing is known of how exactly the model predicts them.")
        if self.twins:
            said.append(f"{many(self.twins, 'twin')} of recordings count as their recordings: they add nothing to how many there are.")
        if self.unpaired:
            said.append(f"{many(self.unpaired, 'row')} without a baseline of the same recording and seed are in no answer.")
        said += [f"The same in every figure of every recording: {'; '.join(map(str, same))}." for same in self.equal]
        if len(self.answers) > self.questions:
            said.append(
                f"{len(self.answers)} questions are asked, and the level leaves room for {self.questions}: up to {self.by_chance:.1f} differences "
                "in the mean are told by chance. The column p is for all of them together."
            )
        return said

    def to_arrow(self) -> pyarrow.Table:
        """A ``pyarrow.Table``, a row an answer."""
        import pyarrow

        keys = {key: pyarrow.array([of.group[key] for of in self.answers], pyarrow.string()) for key in self._groups()}
        text, real, count = pyarrow.string(), pyarrow.float64(), pyarrow.int64()
        columns: dict[str, tuple[list[Any], Any]] = {
            "figure": ([of.figure.name for of in self.answers], text),
            "model": ([of.variant.model for of in self.answers], text),
            "settings": ([of.variant.settings for of in self.answers], text),
            "what_if": ([of.variant.what_if for of in self.answers], text),
            "loads": ([of.loads for of in self.answers], count),
            **{
                name: ([getattr(of, name) for of in self.answers], real)
                for name in ("ratio", "low", "high", "loads_low", "loads_high", "typical", "typical_low", "typical_high", "p_alone", "p")
            },
            "verdict": ([of.verdict for of in self.answers], text),
            **{name: ([getattr(of, name) for of in self.answers], real) for name in ("model_error", "start_error")},
            **{name: ([getattr(of, name) for of in self.answers], count) for name in ("short", "worse")},
            **{name: ([getattr(of, name) for of in self.answers], real) for name in ("worse_low", "worse_high", "worse_by", "unseen")},
        }
        return pyarrow.table(keys | {name: pyarrow.array(*column) for name, column in columns.items()})

    def to_pandas(self) -> pandas.DataFrame:
        """A ``pandas.DataFrame``, a row an answer."""
        return frames.to_pandas(self.to_arrow())

    def units_to_arrow(self) -> pyarrow.Table:
        """A ``pyarrow.Table``, a row for each unit of each answer."""
        import pyarrow

        rows = [
            {
                "figure": answer.figure.name, "variant": str(answer.variant), self.unit: unit.name, "machine": unit.machine, "weight": unit.weight,
                "pairs": unit.pairs, "baseline": unit.baseline, "value": unit.value, "ratio": unit.ratio, "first_ratio": unit.first_ratio,
                "predicted": unit.predicted, "is_short": unit.is_short,
            }
            for answer in self.answers for unit in answer.units
        ]  # fmt: skip
        return pyarrow.Table.from_pylist(rows)

    def _groups(self) -> list[str]:
        return list(self.answers[0].group) if self.answers else []

    def __str__(self) -> str:
        return "\n".join([*map(str, self.answers), *self.said()])

    def _repr_html_(self) -> str:
        body = "".join(
            f"<tr><td>{html.escape(str(of.variant))}</td><td>{html.escape(' '.join(of.group.values()))}</td><td>{of.figure.label}</td>"
            f"<td>{of.ratio:.3f}</td><td>{room(of)}</td><td>{of.loads}</td><td>{of.verdict}</td><td>{html.escape(of.beside())}</td></tr>"
            for of in self.answers
        )
        head = "".join(f"<th>{name}</th>" for name in ("variant", "group", "figure", "ratio", "interval", f"{self.unit}s", "verdict", "beside"))
        said = "".join(f"<p>{html.escape(line)}</p>" for line in self.said())
        return f"<p>against {html.escape(str(self.baseline))}</p><table><tr>{head}</tr>{body}</table>{said}"


def left_out_of(rows: Iterable[Row], gate: float) -> tuple[tuple[str, float], ...]:
    """Recordings below a gate, the worst first: their loads, and their fidelity."""
    below = {(str(row["load"]), str(row["entry"])): float(row["fidelity"]) for row in rows if is_below(row, gate)}
    return tuple((load, fidelity) for (load, _), fidelity in sorted(below.items(), key=lambda of: (of[1], of[0])))


def left_out_said(left_out: Sequence[tuple[str, float]], gate: float) -> list[str]:
    """A sentence that names them, if there are some."""
    if not left_out:
        return []
    named = ", ".join(f"{load} ({fidelity:.1f} %)" for load, fidelity in left_out[:20])
    more = f" and {len(left_out) - 20} more" if len(left_out) > 20 else ""
    return [f"Left out, since the model predicts them to less than {gate:g} %: {named}{more}."]


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def room(answer: Answer) -> str:
    """The interval in words."""
    if answer.low is None or answer.high is None:
        return f"too few {'units' if answer.loads else 'results'} for an interval"
    return f"{_shown(answer.low)} to {_shown(answer.high)}"


def compare(
    results: object,
    *,
    baseline: Variant | str | None = None,
    figures: Iterable[str] = MAIN,
    primary: str | None = None,
    by: Sequence[str] = (),
    unit: str | None = None,
    weights: Mapping[str, float] | None = None,
    gate: float = GATE,
    questions: int = QUESTIONS,
    worse_by: float = 5.0,
    confidence: float = 0.95,
    seed: int = 0,
) -> Comparison:
    """Compares all variants of some results with one of them.

    ``baseline`` is a variant, the name of rules (with their own settings on the recorded machine), or found if only one can be it; ``auto``
    are the rules of each recording's kernel. ``primary`` is the figure that the verdict is about, the first of ``figures`` by default.
    ``by`` groups: some of ``machine``, ``kernel``, ``host``, ``service``, ``load``. ``unit`` is what answers are about: ``host`` where all
    recordings say theirs, else ``load``; with ``load`` among the groups, ``recording``. ``weights`` has a number for each unit, such as
    its hosts or its traffic. Recordings of a fidelity below ``gate`` percent are left out. ``questions`` is for how many verdicts leave
    room, ``worse_by`` from which percent on a unit counts as made worse. ``seed`` draws the signs of ``p``, and changes no verdict.

    Raises :class:`nearpage.ArgumentError`.
    """
    rows = rows_of(results)
    _check(confidence, by, gate, questions, worse_by)
    chosen = named(figures)
    primary = primary or (chosen[0].name if chosen else MAIN[0])
    named([primary])
    base = baseline_of(rows, baseline)
    kind = kind_of(rows, unit, by)
    within = [row for row in rows if not is_below(row, gate)]
    pairs = paired(within, base)
    asked = [
        _Asked(figure, variant, dict(zip(by, group)), units_of(figure, members, kind, rows, weights))
        for figure in chosen
        for variant, of_variant in pairs.items()
        for group, members in _grouped(of_variant, by).items()
    ]
    asked = [of for of in asked if of.units]
    judged = [judge(of.logs(), of.weights(), confidence=confidence) for of in asked]
    together = _together(asked, seed)
    answers = [_answer(of, known, p, confidence, questions, worse_by) for of, known, p in zip(asked, judged, together)]
    count = sum(map(len, pairs.values()))
    return Comparison(
        base, kind, confidence, seed, answers, sum(Variant.of(row) != base for row in within) - count, primary, questions, gate,
        left_out_of(rows, gate), len({row["entry"] for row in within if row.get("fidelity") is None}), len({row["entry"] for row in within if row.get("twin_of")}),
        _equal(pairs, base),
    )  # fmt: skip


def _check(confidence: float, by: Sequence[str], gate: float, questions: int, worse_by: float) -> None:
    for name, value, is_right, accepted in (
        ("confidence", confidence, 0.5 <= confidence < 1, "0.5 to below 1"),
        ("gate", gate, 0 <= gate <= 100, "0 to 100 percent"),
        ("questions", questions, questions >= 1, "1 or more"),
        ("worse_by", worse_by, 0 <= worse_by < math.inf, "0 percent or more"),
    ):
        if not is_right:
            raise ArgumentError(f"{name}={value}, expected {accepted}", name, accepted)
    wrong = [name for name in by if name not in GROUPS]
    if wrong:
        accepted = f"some of {', '.join(GROUPS)}"
        raise ArgumentError(f"by: {wrong[0]!r} is no group, expected {accepted}", "by", accepted)


def is_below(row: Row, gate: float) -> bool:
    """Whether a recording is predicted worse than a gate asks for."""
    fidelity = row.get("fidelity")
    return fidelity is not None and float(fidelity) < gate


@dataclass(frozen=True)
class _Asked:
    figure: Figure
    variant: Variant
    group: dict[str, str]
    units: tuple[Unit, ...]

    def logs(self) -> npt.NDArray[np.float64]:
        return np.array([math.log(unit.ratio) for unit in self.units])

    def weights(self) -> npt.NDArray[np.float64]:
        return np.array([unit.weight for unit in self.units])


def _grouped(pairs: Iterable[Pair], by: Sequence[str]) -> dict[tuple[str, ...], list[Pair]]:
    groups: dict[tuple[str, ...], list[Pair]] = {}
    for pair in pairs:
        groups.setdefault(tuple(str(pair.row.get(name, "")) for name in by), []).append(pair)
    return dict(sorted(groups.items()))


def _together(asked: Sequence[_Asked], seed: int) -> list[float]:
    names = sorted({unit.name for of in asked for unit in of.units})
    at = {name: place for place, name in enumerate(names)}
    columns = [(np.array([at[unit.name] for unit in of.units]), of.logs(), of.weights()) for of in asked]
    return [float(p) for p in family(columns, len(names), seed=seed)]


def _equal(pairs: Mapping[Variant, Sequence[Pair]], base: Variant) -> tuple[tuple[Variant, ...], ...]:
    """Variants whose figures are all the same: they cannot differ, or these recordings cannot tell them."""
    alike: dict[object, list[Variant]] = {}
    columns = [*FIGURES, *("first_" + name for name in FIGURES)]

    def figures(row: Row) -> tuple[Any, ...]:
        return tuple(row.get(name) for name in columns)

    bases: dict[tuple[str, int], Row] = {}
    for variant, of in pairs.items():
        rows = {(str(pair.row["entry"]), int(pair.row["seed"] or 0)): pair for pair in of}
        bases |= {key: pair.base for key, pair in rows.items()}
        if rows:
            alike.setdefault(tuple((key, figures(rows[key].row)) for key in sorted(rows)), []).append(variant)
    own = tuple((key, figures(bases[key])) for key in sorted(bases))
    if own:
        alike.setdefault(own, []).insert(0, base)
    return tuple(tuple(same) for same in alike.values() if len(same) > 1)


def _answer(of: _Asked, known: Judged, together: float, confidence: float, questions: int, worse_by: float) -> Answer:
    model, start = _model_error(of.units), _start_error(of.units)
    is_few = known.units < least_units(1.0 - confidence)
    beyond = _SIGMAS * math.hypot(model or 0.0, start or 0.0)
    low = known.mean - math.hypot(known.mean - known.low, beyond)
    high = known.mean + math.hypot(known.high - known.mean, beyond)
    sign = 1 if of.figure.is_less_better else -1
    least = math.log1p(worse_by / 100.0)
    worse = sum(math.log(unit.ratio) * sign > least for unit in of.units)
    worse_low, worse_high = worse_share(worse, len(of.units), confidence)

    def bound(value: float) -> float | None:
        return None if is_few else _exp(value)

    return Answer(
        of.figure, of.variant, of.group, of.units, _exp(known.mean), bound(low), bound(high), bound(known.low), bound(known.high), _exp(known.typical),
        bound(known.typical_low), bound(known.typical_high), None if is_few else known.p, None if is_few else max(together, known.p),
        _verdict(of, known, low <= 0.0 <= high, is_few, (1.0 - confidence), questions),
        None if model is None else math.exp(model), None if start is None else math.exp(start), worse, worse_low, worse_high, worse_by,
        unseen_share(len(of.units), confidence),
    )  # fmt: skip


def _verdict(of: _Asked, known: Judged, has_room: bool, is_few: bool, level: float, questions: int) -> Verdict:
    if all(unit.ratio == 1.0 and unit.first_ratio in (None, 1.0) for unit in of.units):
        return "the same"
    if is_few:
        return "too few"
    side = known.side(level)
    if side == 0:
        return "no difference can be told"
    if has_room:
        return "within the model's error"
    is_better = (side < 0) == of.figure.is_less_better
    if known.side(level / questions) == 0:
        return "perhaps better" if is_better else "perhaps worse"
    return "better" if is_better else "worse"


def _model_error(units: Sequence[Unit]) -> float | None:
    """The standard uncertainty of what the model does to all units alike: the mean of its errors, and how uncertain that is. What it does
    to each unit by itself is in the differences between units already. As if all of it was on one side of the ratio."""
    errors = [math.log(unit.predicted) for unit in units if unit.predicted is not None]
    if not errors:
        return None
    mean = math.fsum(errors) / len(errors)
    spread = math.fsum((error - mean) ** 2 for error in errors) / (len(errors) - 1) if len(errors) > 1 else mean * mean
    return math.sqrt(mean * mean + spread / len(errors))


def _start_error(units: Sequence[Unit]) -> float | None:
    """The same of the start: anything between what both passes say is as probable (a rectangle, JCGM 100:2008, 4.3.7)."""
    apart = [(math.log(unit.first_ratio) - math.log(unit.ratio), unit.weight) for unit in units if unit.first_ratio is not None]
    if not apart or len(apart) < len(units):
        return None
    return abs(math.fsum(of * weight for of, weight in apart) / math.fsum(weight for _, weight in apart)) / math.sqrt(3.0)


def _exp(logarithm: float) -> float:
    return math.exp(logarithm) if logarithm < 700.0 else math.inf


def _shown(bound: float) -> str:
    """A bound that says nothing is not shown with its digits."""
    return "0" if bound < 1e-4 else "any" if bound > 1e4 else f"{bound:.3f}"


