"""What kernels log of the figures: a recording's own kernel says how exactly the model predicts a figure of this recording.

>>> round(errors_of('{"refills": [110, 78, 90, 130], "drains": [32, 0, 32, 32]}')["holds_refill"], 1)
29.1

A figure that kernels log nothing of has no known error: that is unknown, and not 0.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

__all__ = ["LOGGED", "error_column", "errors_of", "quantities_of"]

#: For each figure the quantities that kernels log of it. Together they are a part of it: of holds those to refill and to drain.
LOGGED: Mapping[str, tuple[str, ...]] = {
    "holds": ("refills", "drains"),
    "holds_refill": ("refills",),
    "holds_drain": ("drains",),
    "operations": ("refill_pages", "drain_pages"),
    "kept_pages_mean": ("pcp_count",),
}

#: Added to both sides of a ratio, as to those of figures.
_DAMPING = 32.0


def error_column(figure: str) -> str:
    """The column of results with a figure's error."""
    return f"error_percent_{figure}"


def quantities_of(rows: list[dict[str, object]]) -> dict[str, list[object]]:
    """Of a replay's rows of fidelity those over all zones: predicted, recorded, and the least and the most of the starts."""
    found = {}
    for row in rows:
        if row["where"] == "all" and row.get("at") in (None, "end") and row["predicted"] is not None and row["recorded"] is not None:
            bound = row.get("drawn_range")
            found[str(row["quantity"])] = [row["predicted"], row["recorded"], *(bound if isinstance(bound, list) else (None, None))]
    return found


def errors_of(quantities: str | None) -> dict[str, float]:
    """How much more (below 0: less) than its kernel logged the model predicts of each figure, in percent, for a recording by its
    quantities in JSON. What was not logged is left out."""
    known: dict[str, list[float]] = json.loads(quantities) if quantities else {}
    errors = {}
    for figure, parts in LOGGED.items():
        if all(part in known for part in parts):
            predicted, recorded = (sum(float(known[part][at]) for part in parts) for at in (0, 1))
            errors[figure] = 100.0 * ((predicted + _DAMPING) / (recorded + _DAMPING) - 1.0)
    return errors
