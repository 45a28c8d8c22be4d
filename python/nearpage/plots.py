"""Plots of results by matplotlib, for who has it (``pip install matplotlib``). A figure shows itself in a notebook.

Nothing here keeps state: figures are made without pyplot, and are gone with their last reference.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .errors import NearpageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ._nearpage import Report, Table

__all__ = ["samples", "sweep"]


def samples(report: Report, quantity: str = "free", *, ax: Axes | None = None, width: float = 8.0, height: float = 3.5) -> Figure:
    """The course of a quantity over the samples of a replay, recorded (lines) and predicted (dashes), a colour a zone, in a figure
    of its own or in ``ax``.

    ``quantity`` is ``free`` (pages of zones), ``count`` or ``high`` (pages and limits of the largest pagesets). Sizes are in inches.
    """
    figure, axes = _figure(width, height, ax)
    by_line: dict[tuple[str, int | None], list[dict[str, Any]]] = {}
    for row in report.samples.to_dicts():
        if row["quantity"] == quantity:
            by_line.setdefault((row["zone"], row["cpu"]), []).append(row)
    if not by_line:
        accepted = "free, count or high, of a bundle with samples"
        raise NearpageError(f"{report.bundle}: no samples of {quantity!r}, expected {accepted}", "quantity", accepted)
    for at, ((zone, cpu), rows) in enumerate(by_line.items()):
        name = zone if cpu is None else f"{zone} CPU {cpu}"
        for kind, style in (("recorded", "-"), ("predicted", "--")):
            points = [(row["sample"], row[kind]) for row in rows if row[kind] is not None]
            axes.plot([x for x, _ in points], [y for _, y in points], style, color=f"C{at % 10}", label=f"{name}, {kind}")
    axes.set(xlabel="sample", ylabel=f"{quantity}, pages", title=report.bundle)
    axes.legend(fontsize="small")
    return figure


def sweep(table: Table, x: str = "lock_acquisitions", y: str = "most_pages_per_hold", *, label: Sequence[str] | None = None, ax: Axes | None = None) -> Figure:
    """The points of a sweep in two figures; those that no other beats in both are filled. ``label`` are the settings that name them, by
    default all that the sweep was over."""
    figure, axes = _figure(6.0, 4.5, ax)
    rows = table.to_dicts()
    settings = list(label) if label is not None else [name for name in table.column_names if "." in name]
    for row in rows:
        if row[x] is None or row[y] is None:
            continue
        axes.plot(row[x], row[y], "o", color="C0", fillstyle="full" if row.get("is_best") else "none")
        if row.get("is_best"):
            name = ", ".join(f"{key.rpartition('.')[2]}={row[key]}" for key in settings)
            axes.annotate(name, (row[x], row[y]), xytext=(5, 5), textcoords="offset points", fontsize="small")
    axes.set(xlabel=x.replace("_", " "), ylabel=y.replace("_", " "))
    return figure


def _drawn(report: Report) -> str:
    """The samples of a replay as SVG for a notebook; empty without samples or without matplotlib."""
    try:
        figure = samples(report)
    except NearpageError:
        return ""
    return _svg(figure)


def _figure(width: float, height: float, ax: Axes | None) -> tuple[Figure, Axes]:
    if ax is not None:
        figure = ax.get_figure(root=True)
        if figure is None:
            accepted = "axes of a figure"
            raise NearpageError(f"ax: these axes were removed from their figure, expected {accepted}", "ax", accepted)
        return figure, ax
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise NearpageError("plots need matplotlib (pip install matplotlib)", "matplotlib", "pip install matplotlib") from error

    class Shown(Figure):
        """A figure that a notebook shows without a magic command of its own."""

        def _repr_html_(self) -> str:
            return _svg(self)

    shown = Shown(figsize=(width, height), layout="constrained")
    return shown, shown.subplots()


def _svg(figure: Figure) -> str:
    drawn = io.StringIO()
    figure.savefig(drawn, format="svg")
    # What comes before the element is of a file of its own.
    return drawn.getvalue()[drawn.getvalue().index("<svg") :]
