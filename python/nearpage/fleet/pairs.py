"""Results of a study, paired: the same recording with the same seed, under a variant and under the baseline.

A **variant** is a set of rules with settings on a machine: the columns ``model``, ``settings`` and ``what_if``. A **pair** is the rows of a
variant and of the baseline that share ``entry`` and ``seed``. A **unit** is what answers are about, a load or an entry: pairs within a
unit are not independent of each other, and enter as their mean.
"""

from __future__ import annotations

import json
import math
import numbers
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import ArgumentError
from .figures import DAMPING, FIGURES, Figure

Row = Mapping[str, Any]

#: Columns that every table of results has.
NEEDED = ("entry", "load", "machine", "kernel", "model", "settings", "what_if", "seed")


@dataclass(frozen=True, order=True)
class Variant:
    """Rules with settings on a machine."""

    model: str
    #: JSON with sorted keys; ``{}`` are the rules' own.
    settings: str = "{}"
    #: JSON of another machine; empty is the recorded one.
    what_if: str = ""

    @staticmethod
    def of(row: Row) -> Variant:
        return Variant(str(row["model"]), str(row["settings"] or "{}"), str(row["what_if"] or ""))

    def __str__(self) -> str:
        settings = json.loads(self.settings) if self.settings else {}
        parts = [self.model, *(f"{key}={shown(value)}" for key, value in settings.items())]
        if self.what_if:
            parts.append(f"on {self.what_if}")
        return " ".join(parts)

    def arguments(self) -> str:
        """As ``nearpage replay`` takes it, where it does."""
        settings = json.loads(self.settings) if self.settings else {}
        model = [] if self.model == "auto" else [f"--model {self.model}"]
        return " ".join([*model, *(f"--set {key}={shown(value)}" for key, value in settings.items())])


def shown(value: object) -> str:
    """A setting's value as the command line takes it."""
    return ("on" if value else "off") if isinstance(value, bool) else str(value)


@dataclass(frozen=True)
class Pair:
    """A row of the variant beside the baseline's."""

    row: Row
    base: Row

    def values(self, figure: Figure, before: str = "") -> tuple[float, float] | None:
        """Of the variant and of the baseline; nothing where one of them has not measured it. ``before`` is what columns of another pass
        have before their names."""
        value, base = self.row.get(before + figure.name), self.base.get(before + figure.name)
        if value is None or base is None or not (math.isfinite(value) and math.isfinite(base)):
            return None
        return float(value), float(base)


def rows_of(results: object) -> list[Row]:
    """Rows of a table: of Arrow, of dicts, or whatever hands over an Arrow stream."""
    table: Any = results
    if not isinstance(results, Sequence) and not hasattr(results, "to_pylist"):
        import pyarrow

        try:
            table = pyarrow.table(results)
        except (TypeError, ValueError, pyarrow.ArrowException) as error:
            accepted = "a table, or a list of rows"
            raise ArgumentError(f"results: {error}, expected {accepted}", "results", accepted) from error
    rows: list[Row] = list(table) if isinstance(table, Sequence) else table.to_pylist()
    for at, row in enumerate(rows):
        _check(at, row)
    return rows


def _check(at: int, row: object) -> None:
    """Refuses what is no row of results."""
    if not isinstance(row, Mapping):
        accepted = f"a row with the columns {', '.join(NEEDED)} and figures"
        raise ArgumentError(f"results: row {at} is {row!r:.60}, expected {accepted}", "results", accepted)
    missing = [name for name in NEEDED if name not in row]
    if missing:
        accepted = f"columns {', '.join(NEEDED)} and figures"
        raise ArgumentError(f"results: there is no column {', '.join(missing)}, expected {accepted}", "results", accepted)
    wrong = {name: "a number from 0 on, or null" for name in FIGURES if not _is_number(row.get(name))}
    if not _is_number(row["seed"]) or isinstance(row["seed"], float) and not row["seed"].is_integer():
        wrong["seed"] = "a whole number, or null"
    if not _is_object(row["settings"]):
        wrong["settings"] = "a JSON object, such as {}"
    for name, accepted in wrong.items():
        raise ArgumentError(f"results: row {at} has {name} {row[name]!r:.60}, expected {accepted}", "results", accepted)


def _is_number(value: object) -> bool:
    # What a figure could not be (NaN, infinite) is as if it was not measured.
    return value is None or isinstance(value, numbers.Real) and not isinstance(value, bool) and not value < 0


def _is_object(value: object) -> bool:
    if value in (None, "", "{}"):
        return True
    try:
        return isinstance(value, str) and isinstance(json.loads(value), dict)
    except ValueError:
        return False


def baseline_of(rows: Iterable[Row], wanted: Variant | str | None) -> Variant:
    """The variant that others are compared with: the one asked for (all of it, or only its rules), or the only one with the rules' own
    settings on the recorded machine."""
    variants = sorted({Variant.of(row) for row in rows})
    if isinstance(wanted, Variant):
        found = [variant for variant in variants if variant == wanted]
    else:
        own = [variant for variant in variants if variant.settings in ("", "{}") and not variant.what_if]
        found = [variant for variant in own if wanted is None or variant.model == wanted]
        # The rules that each recording's kernel had.
        if wanted is None and len(found) > 1:
            found = [variant for variant in found if variant.model == "auto"] or found
    if len(found) != 1:
        # Of many choices those without settings are meant.
        choices = variants if isinstance(wanted, Variant) else own or variants
        accepted = "one of " + "; ".join(map(str, choices)) if variants else "results with rows"
        which = f"{wanted} is no variant of these results" if wanted else f"{len(found)} variants could be the baseline"
        raise ArgumentError(f"baseline: {which}, expected {accepted}", "baseline", accepted)
    return found[0]


def paired(rows: Iterable[Row], baseline: Variant) -> dict[Variant, list[Pair]]:
    """The pairs of each variant but the baseline, in the order of entries. Of rows of the same variant, entry and seed the last counts."""
    by_variant: dict[Variant, dict[tuple[str, int], Row]] = {}
    for row in rows:
        by_variant.setdefault(Variant.of(row), {})[str(row["entry"]), int(row["seed"] or 0)] = row
    base = by_variant.pop(baseline, {})
    return {
        variant: [Pair(row, base[key]) for key, row in sorted(own.items()) if key in base]
        for variant, own in sorted(by_variant.items())
    }


def ratio(value: float, base: float) -> float:
    """(n + 32) / (baseline + 32)."""
    return (value + DAMPING) / (base + DAMPING)
