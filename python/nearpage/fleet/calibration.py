"""How exactly the model predicts what kernels log, over all recordings of a store: for each quantity, by kernel and by kind of load.

>>> store_of = {"entry": "e", "load": "l", "kernel": "6.12.9-x", "host": None, "quantity": "refills", "least": None, "most": None}
>>> rows = [store_of | {"predicted": 10 * n + 5, "recorded": 10 * n} for n in range(5, 20)]
>>> [of] = calibrate(rows)
>>> (of.quantity, of.recordings, round(of.bias, 2), of.curve[0][1] > of.curve[0][0])
('refills', 15, 1.04, True)

A ratio is (predicted + 32) / (recorded + 32). The *bias* is its geometric mean, with an interval that takes recordings as they come; the
*spread* is where two thirds of recordings lie about it, as a factor. The *curve* is what is predicted where so much was recorded, smoothed
(LOWESS of statsmodels where it is installed; else means of fifths).
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ArgumentError
from .judge import judge
from .pairs import ratio

if TYPE_CHECKING:
    import pyarrow

__all__ = ["Calibrated", "calibrate", "release_of", "to_arrow", "to_html"]

#: Recordings from which on a curve says something.
_CURVED = 10


@dataclass(frozen=True)
class Calibrated:
    """A quantity over the recordings of a group."""

    quantity: str
    group: dict[str, str]
    recordings: int
    #: The geometric mean of predicted to recorded, and its interval; infinite with too few recordings.
    bias: float
    low: float
    high: float
    #: A standard deviation, as a factor; ``None`` of one recording.
    spread: float | None
    #: Recorded and predicted: of each recording, and of the curve.
    points: tuple[tuple[float, float], ...]
    curve: tuple[tuple[float, float], ...]

    def __str__(self) -> str:
        where = "".join(f", {key} {value}" for key, value in self.group.items())
        room = f" ({self.low:.2f} to {self.high:.2f})" if math.isfinite(self.high) else ""
        spread = "" if self.spread is None else f", spread x{self.spread:.2f}"
        return f"{self.quantity}{where}: x{self.bias:.2f}{room} over {self.recordings}{spread}"


def release_of(row: Mapping[str, Any]) -> str:
    """The kernel of a row by its first two numbers."""
    return ".".join(str(row["kernel"]).split(".")[:2])


_BY: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "kernel": release_of, "load": lambda row: str(row["load"]), "host": lambda row: str(row["host"] or "unknown"),
}  # fmt: skip


def calibrate(fidelity: object, *, by: Sequence[str] = (), confidence: float = 0.95) -> list[Calibrated]:
    """Calibrates rows of the view ``fidelity`` (of :func:`nearpage.fleet.sql.fidelity_of`): ``by`` is some of kernel, load and host."""
    wrong = [name for name in by if name not in _BY]
    if wrong:
        accepted = f"some of {', '.join(_BY)}"
        raise ArgumentError(f"by: {wrong[0]!r} is no group, expected {accepted}", "by", accepted)
    rows: Iterable[Mapping[str, Any]] = fidelity.to_pylist() if hasattr(fidelity, "to_pylist") else fidelity  # type: ignore[assignment]
    groups: dict[tuple[str, ...], list[tuple[float, float]]] = {}
    for row in rows:
        key = (str(row["quantity"]), *(_BY[name](row) for name in by))
        groups.setdefault(key, []).append((float(row["recorded"]), float(row["predicted"])))
    return [_of(key[0], dict(zip(by, key[1:])), sorted(points), confidence) for key, points in sorted(groups.items())]


def _of(quantity: str, group: dict[str, str], points: list[tuple[float, float]], confidence: float) -> Calibrated:
    logs = np.array([math.log(ratio(predicted, recorded)) for recorded, predicted in points])
    known = judge(logs, confidence=confidence)
    low, high = (math.exp(min(max(end, -700.0), 700.0)) if math.isfinite(end) else (0.0 if end < 0 else math.inf) for end in (known.low, known.high))
    spread = math.exp(float(np.std(logs, ddof=1))) if len(logs) > 1 else None
    return Calibrated(quantity, group, len(points), math.exp(known.mean), low, high, spread, tuple(points), _curve(points, logs))


def _curve(points: Sequence[tuple[float, float]], logs: Any) -> tuple[tuple[float, float], ...]:
    if len(points) < _CURVED:
        return ()
    recorded = np.array([math.log(of + 32.0) for of, _ in points])
    try:
        from statsmodels.nonparametric.smoothers_lowess import lowess

        smooth = lowess(logs, recorded, frac=0.6, it=3, return_sorted=True)
        pairs = [(float(x), float(y)) for x, y in smooth if math.isfinite(y)]
    except ImportError:
        fifths = np.array_split(np.arange(len(points)), 5)
        pairs = [(float(recorded[of].mean()), float(logs[of].mean())) for of in fifths]
    return tuple((max(math.exp(x) - 32.0, 0.0), max(math.exp(x + y) - 32.0, 0.0)) for x, y in pairs)


def to_arrow(calibrated: Sequence[Calibrated]) -> pyarrow.Table:
    """A ``pyarrow.Table``, a row a quantity of a group."""
    import pyarrow

    return pyarrow.Table.from_pylist(
        [
            {**of.group, "quantity": of.quantity, "recordings": of.recordings, "bias": of.bias, "low": of.low, "high": of.high, "spread": of.spread}
            for of in calibrated
        ]
    )


def to_html(calibrated: Sequence[Calibrated], *, width: int = 300) -> str:
    """Predicted against recorded, a plot a quantity: a dot is a recording, the dashed line no error."""
    return "".join(_plot(of, width) for of in calibrated if of.recordings > 1)


def _plot(of: Calibrated, width: int) -> str:
    logs = [math.log(value + 32.0) for point in of.points for value in point]
    least, most = min(logs) - 0.1, max(logs) + 0.1

    def at(value: float) -> float:
        return 10 + (math.log(value + 32.0) - least) / (most - least) * (width - 20)

    dots = "".join(f'<circle class="unit" cx="{at(x):.1f}" cy="{width - at(y):.1f}" r="3"/>' for x, y in of.points[:: max(1, len(of.points) // 200)])
    line = " ".join(f"{at(x):.1f},{width - at(y):.1f}" for x, y in of.curve[:: max(1, len(of.curve) // 50)])
    curve = f'<polyline class="front" points="{line}"/>' if line else ""
    none = f'<line class="none" x1="10" y1="{width - 10}" x2="{width - 10}" y2="10"/>'
    title = html.escape(str(of))
    return f'<figure><svg viewBox="0 0 {width} {width}" role="img">{none}{dots}{curve}</svg><figcaption>{title}</figcaption></figure>'
