"""Units: what answers are about, and what is drawn from a fleet. Recordings of one host, and twins of one recording, are not others.

Within a unit values are means, from the inside out: of seeds in a recording, of recordings (a twin is its recording's) in a host, of hosts
in a service. So a host that was recorded ten times is one host.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ..errors import ArgumentError
from .figures import Figure
from .logged import error_column
from .pairs import Pair, Row, ratio
from .results import FIRST

__all__ = ["Kind", "Unit", "kind_of", "namer", "recording_of", "units_of", "weights_of"]

Kind = Literal["recording", "load", "host", "service"]
KINDS = ("recording", "load", "host", "service")


@dataclass(frozen=True)
class Unit:
    """What a variant came to in a unit."""

    name: str
    machine: str
    entries: tuple[str, ...]
    pairs: int
    #: Means over its pairs.
    baseline: float
    value: float
    #: The geometric mean of the pairs' ratios: of the second pass, and of the first, if that is known.
    ratio: float
    first_ratio: float | None = None
    #: What the model predicts of this figure beside what the kernel logged, as a ratio; ``None`` where nothing was logged.
    predicted: float | None = None
    #: Whether the start of the recordings makes more of the figure than all that comes after it: the passes differ twofold and more.
    is_short: bool = False
    weight: float = 1.0

    @property
    def difference(self) -> float:
        return self.value - self.baseline


def kind_of(rows: Iterable[Row], wanted: str | None, by: Sequence[str]) -> Kind:
    """What answers are about: hosts, if all recordings say theirs, else loads. Asked by load, recordings of it."""
    if wanted is not None and wanted not in KINDS:
        accepted = f"one of {', '.join(KINDS)}"
        raise ArgumentError(f"unit={wanted!r}, expected {accepted}", "unit", accepted)
    rows = list(rows)
    for kind in ("host", "service"):
        if wanted == kind and not all(row.get(kind) for row in rows):
            lacking = next(str(row["load"]) for row in rows if not row.get(kind))
            accepted = f"recordings that say their {kind} (nearpage-fleet ingest --{kind}), or another unit"
            raise ArgumentError(f"unit={kind!r}: {lacking} does not say its {kind}, expected {accepted}", "unit", accepted)
    if wanted is not None:
        return wanted  # type: ignore[return-value]
    if "load" in by:
        return "recording"
    return "host" if rows and all(row.get("host") for row in rows) else "load"


def recording_of(row: Row) -> str:
    """The recording that a row is about: of a twin that which it was made up after."""
    return str(row.get("twin_of") or row.get("name") or row["entry"])


def namer(kind: Kind, rows: Iterable[Row]) -> Callable[[Row], str]:
    """What names the unit of a row. ``rows`` are all there are: they say which load a twin's recording is of."""
    loads = {str(row["name"]): str(row["load"]) for row in rows if row.get("name") and not row.get("twin_of")}
    names: dict[str, Callable[[Row], str]] = {
        "recording": lambda row: recording_of(row) if row.get("twin_of") else str(row["entry"]),
        "load": lambda row: loads.get(str(row["twin_of"]), str(row["twin_of"])) if row.get("twin_of") else str(row["load"]),
        "host": lambda row: str(row["host"]), "service": lambda row: str(row["service"]),
    }  # fmt: skip
    return names[kind]


def weights_of(weights: Mapping[str, float] | None, units: Iterable[str]) -> dict[str, float]:
    """A weight for each unit, such as its hosts or its traffic."""
    if weights is None:
        return dict.fromkeys(units, 1.0)
    accepted = "a number above 0 for each unit"
    for unit in units:
        weight = weights.get(unit)
        if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not 0 < weight < math.inf:
            what = "has no weight" if weight is None else f"has the weight {weight!r}"
            raise ArgumentError(f"weights: {unit} {what}, expected {accepted}", "weights", accepted)
    return {unit: float(weights[unit]) for unit in units}


def units_of(figure: Figure, pairs: Sequence[Pair], kind: Kind, rows: Iterable[Row], weights: Mapping[str, float] | None) -> tuple[Unit, ...]:
    """The units of some pairs in which a figure was measured. ``rows`` are all there are."""
    name_of = namer(kind, rows)
    by_unit: dict[str, list[tuple[Pair, float, float]]] = {}
    for pair in pairs:
        values = pair.values(figure)
        if values is not None:
            by_unit.setdefault(name_of(pair.row), []).append((pair, *values))
    shares = weights_of(weights, by_unit)
    return tuple(_unit(name, figure, of, shares[name]) for name, of in sorted(by_unit.items()))


def _unit(name: str, figure: Figure, of: list[tuple[Pair, float, float]], weight: float) -> Unit:
    first = [(pair, pair.values(figure, FIRST)) for pair, _, _ in of]
    of_first = [(pair, math.log(ratio(*values))) for pair, values in first if values is not None]
    errors = [(pair, math.log1p(percent / 100.0)) for pair, _, _ in of if (percent := pair.row.get(error_column(figure.name))) is not None]
    bases = [(base, pair.values(figure, FIRST)) for pair, _, base in of]
    apart = [abs(math.log(ratio(base, values[1]))) for base, values in bases if values is not None]
    return Unit(
        name, ", ".join(sorted({str(pair.row["machine"]) for pair, _, _ in of})), tuple(sorted({str(pair.row["entry"]) for pair, _, _ in of})), len(of),
        _mean([(pair, base) for pair, _, base in of]), _mean([(pair, value) for pair, value, _ in of]),
        math.exp(_mean([(pair, math.log(ratio(value, base))) for pair, value, base in of])),
        math.exp(_mean(of_first)) if len(of_first) == len(of) else None,
        math.exp(_mean(errors)) if errors else None, bool(apart) and math.fsum(apart) / len(apart) > math.log(2.0), weight,
    )  # fmt: skip


def _mean(values: list[tuple[Pair, float]]) -> float:
    """From the inside out: of an entry's seeds, of a recording's entries, of a host's recordings, and of those."""
    nested: list[tuple[tuple[str, ...], float]] = [
        ((str(pair.row.get("host") or ""), recording_of(pair.row), str(pair.row["entry"])), value) for pair, value in values
    ]
    while True:
        groups: dict[tuple[str, ...], list[float]] = {}
        for path, value in nested:
            groups.setdefault(path, []).append(value)
        means = [(path, math.fsum(members) / len(members)) for path, members in sorted(groups.items())]
        if means[0][0] == ():
            return means[0][1]
        nested = [(path[:-1], value) for path, value in means]
