"""Pages of HTML: text, tables, and plots as inline SVG that follow the reader's light or dark.

One file, no network: what is shown is in it. Whatever comes from a recording is escaped.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .. import _nearpage

#: What the frame of all pages lacks.
_STYLE = """
.line { white-space: nowrap; } .few { color: var(--known); }
svg { width: 100%; } svg text { font-size: 12px; } svg .faint { fill: var(--faint); }
svg .axis { stroke: var(--line); } svg .none { stroke: var(--faint); stroke-dasharray: 3 3; }
svg .same { stroke: var(--faint); fill: var(--faint); } svg .better { stroke: var(--good); fill: var(--good); }
svg .worse { stroke: var(--bad); fill: var(--bad); } svg .unit { fill: var(--heat); fill-opacity: 0.35; }
svg .front { stroke: var(--heat); fill: none; }
pre { white-space: pre-wrap; background: var(--box); border-radius: 6px; }
"""


def escaped(text: object) -> str:
    return html.escape(str(text))


def document(title: str, parts: Iterable[str]) -> str:
    """A whole page, in the frame of all of nearpage's pages: its tables sort."""
    return _nearpage.framed_page(title, _STYLE, "\n".join(parts))


@dataclass(frozen=True)
class Cell:
    """A cell of a table."""

    text: str
    kind: str = ""
    is_code: bool = False
    #: What its text stands behind, until the reader opens it.
    summary: str = ""

    def html(self) -> str:
        text = f"<code>{escaped(self.text)}</code>" if self.is_code else escaped(self.text)
        return f"<details><summary>{escaped(self.summary)}</summary>{text}</details>" if self.summary else text


def number(value: float, digits: int = 3) -> Cell:
    """Whole numbers and large ones without a fraction."""
    text = f"{value:,.0f}" if value == round(value) or abs(value) >= 1000 else f"{value:,.{digits}f}"
    return Cell(text, "number")


def table(head: Sequence[str], rows: Iterable[Sequence[Cell | str]]) -> str:
    """A table; columns of numbers stand right."""
    lines = []
    numbers: set[int] = set()
    for row in rows:
        cells = [cell if isinstance(cell, Cell) else Cell(cell) for cell in row]
        numbers |= {at for at, cell in enumerate(cells) if "number" in cell.kind}
        lines.append("<tr>" + "".join(f'<td class="{cell.kind}">{cell.html()}</td>' for cell in cells) + "</tr>")
    heads = "".join(f'<th scope="col" class="{"number" if at in numbers else ""}">{escaped(name)}</th>' for at, name in enumerate(head))
    return f'<div class="scroll"><table><thead><tr>{heads}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'


def figure(title: str, caption: str, drawing: str) -> str:
    return f"<figure>{drawing}<figcaption><b>{escaped(title)}</b>{escaped(caption)}</figcaption></figure>"


@dataclass(frozen=True)
class Range:
    """A line of a plot of ratios: its point, its interval, and what it is made of."""

    label: str
    middle: float
    low: float | None
    high: float | None
    #: ``better``, ``worse`` or ``same``.
    kind: str
    points: tuple[float, ...] = ()


class Axis:
    """A logarithmic axis over some ratios, with 1 on it."""

    def __init__(self, values: Iterable[float], begin: float, end: float) -> None:
        logs = [math.log(min(max(value, 1e-3), 1e3)) for value in values] + [math.log(0.9), math.log(1.1)]
        room = 0.05 * (max(logs) - min(logs))
        self.least, self.most = min(logs) - room, max(logs) + room
        self.begin, self.end = begin, end

    def at(self, value: float) -> float:
        share = (math.log(max(value, 1e-9)) - self.least) / (self.most - self.least)
        return self.begin + min(max(share, 0.0), 1.0) * (self.end - self.begin)

    def ticks(self) -> list[float]:
        width = self.most - self.least
        steps = [0.01, 0.1, 1, 10, 100] if width > 4 else [0.125, 0.25, 0.5, 1, 2, 4, 8] if width > 1.2 else [0.5, 0.67, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 2]
        return [step for step in steps if self.least <= math.log(step) <= self.most]


def ranges(lines: Sequence[Range], *, width: int = 620, line_height: int = 22) -> str:
    """Ratios with their intervals, one under the other, and a dot for each load."""
    left = min(260, 14 + int(6.6 * max((len(line.label) for line in lines), default=0)))
    axis = Axis((value for line in lines for value in (line.middle, line.low, line.high, *line.points) if value is not None), left, width - 12)
    bottom = len(lines) * line_height + 8
    out = [f'<svg viewBox="0 0 {width} {bottom + 22}" role="img">']
    for tick in axis.ticks():
        x = axis.at(tick)
        kind = "none" if tick == 1 else "axis"
        out.append(f'<line class="{kind}" x1="{x:.1f}" x2="{x:.1f}" y1="2" y2="{bottom}"/>')
        out.append(f'<text class="faint" x="{x:.1f}" y="{bottom + 15}" text-anchor="middle">{tick:g}</text>')
    for place, line in enumerate(lines):
        y = place * line_height + line_height / 2 + 3
        label = line.label if len(line.label) <= 38 else line.label[:36] + "…"
        out.append(f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end"><title>{escaped(line.label)}</title>{escaped(label)}</text>')
        out += [f'<circle class="unit" cx="{axis.at(point):.1f}" cy="{y:.1f}" r="3"/>' for point in line.points]
        if line.low is not None and line.high is not None:
            out.append(f'<line class="{line.kind}" stroke-width="2" x1="{axis.at(line.low):.1f}" x2="{axis.at(line.high):.1f}" y1="{y:.1f}" y2="{y:.1f}"/>')
        out.append(f'<rect class="{line.kind}" x="{axis.at(line.middle) - 3.5:.1f}" y="{y - 3.5:.1f}" width="7" height="7"/>')
    return "".join(out) + "</svg>"


@dataclass(frozen=True)
class Spot:
    """A point of a plot of two ratios."""

    label: str
    x: float
    y: float
    is_best: bool


def spots(points: Sequence[Spot], x_label: str, y_label: str, *, width: int = 620, height: int = 420) -> str:
    """Two ratios against each other, and the front of those that no other beats in both."""
    across = Axis((point.x for point in points), 60, width - 20)
    up = Axis((point.y for point in points), height - 44, 14)
    out = [f'<svg viewBox="0 0 {width} {height}" role="img">']
    for tick in across.ticks():
        x = across.at(tick)
        out.append(f'<line class="{"none" if tick == 1 else "axis"}" x1="{x:.1f}" x2="{x:.1f}" y1="14" y2="{height - 44}"/>')
        out.append(f'<text class="faint" x="{x:.1f}" y="{height - 28}" text-anchor="middle">{tick:g}</text>')
    for tick in up.ticks():
        y = up.at(tick)
        out.append(f'<line class="{"none" if tick == 1 else "axis"}" x1="60" x2="{width - 20}" y1="{y:.1f}" y2="{y:.1f}"/>')
        out.append(f'<text class="faint" x="54" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>')
    out.append(f'<text class="faint" x="{(60 + width) / 2}" y="{height - 8}" text-anchor="middle">{escaped(x_label)}</text>')
    out.append(f'<text class="faint" x="14" y="{height / 2}" text-anchor="middle" transform="rotate(-90 14 {height / 2})">{escaped(y_label)}</text>')
    best = sorted((point.x, point.y) for point in points if point.is_best)
    if len(best) > 1:
        path = " ".join(f"{across.at(x):.1f},{up.at(y):.1f}" for x, y in best)
        out.append(f'<polyline class="front" points="{path}"/>')
    for point in points:
        x, y = across.at(point.x), up.at(point.y)
        kind = "better" if point.is_best else "same"
        out.append(f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="4"><title>{escaped(point.label)}</title></circle>')
        if point.is_best:
            anchor, shift = ("end", -7) if x > width * 0.6 else ("start", 7)
            out.append(f'<text x="{x + shift:.1f}" y="{y - 6:.1f}" text-anchor="{anchor}">{escaped(point.label)}</text>')
    return "".join(out) + "</svg>"
