"""The figures that variants are compared by: what each is, and which of two values is better.

>>> FIGURES["holds"].is_less_better, FIGURES["whole_mean"].is_less_better
(True, False)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..errors import ArgumentError

#: Added to both sides of a ratio of counts, as ``nearpage replay rules`` does: so that small counts say nothing.
DAMPING = 32.0


@dataclass(frozen=True)
class Figure:
    """A column of results that variants are compared by."""

    name: str
    #: As tables and plots head it.
    label: str
    unit: str
    is_less_better: bool = True


def _all() -> dict[str, Figure]:
    less = [
        ("holds", "holds", "holds"),
        ("holds_refill", "holds to refill", "holds"),
        ("holds_drain", "holds to drain", "holds"),
        ("holds_direct", "holds for one block", "holds"),
        ("holds_foreign", "holds of another CPU's", "holds"),
        ("holds_upkeep", "holds of upkeep", "holds"),
        ("foreign_takes", "takes of another CPU's pagesets", "takes"),
        ("operations", "operations under holds", "operations"),
        ("longest_hold_operations", "longest hold", "operations"),
        ("kept_pages_mean", "kept, mean", "pages"),
        ("kept_pages_max", "kept, most", "pages"),
        ("remote_pages", "remote pages", "pages"),
        ("failed", "refused", "requests"),
    ]
    more = [
        ("whole_mean", "whole pageblocks, mean", "ranges of 512 pages"),
        ("whole_end", "whole pageblocks, end", "ranges of 512 pages"),
    ]
    figures = [Figure(*of) for of in less] + [Figure(*of, is_less_better=False) for of in more]
    return {figure.name: figure for figure in figures}


#: All figures, by the names of their columns, in the order of tables.
FIGURES = _all()

#: What a report shows if nothing else is asked for.
MAIN = ("holds", "longest_hold_operations", "kept_pages_mean", "remote_pages", "whole_mean")


def named(names: Iterable[str]) -> list[Figure]:
    """The figures called so. Raises :class:`nearpage.ArgumentError` for others."""
    found = []
    for name in names:
        if name not in FIGURES:
            accepted = f"some of {', '.join(FIGURES)}"
            raise ArgumentError(f"{name!r} is no figure, expected {accepted}", "figures", accepted)
        found.append(FIGURES[name])
    return found
