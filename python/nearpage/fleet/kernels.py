"""Two kernels under the same loads: recordings made under each, compared in what the kernels themselves counted.

>>> old = [Counted(f"load {n}", "m", "6.1", 100_000, {"pgsteal_kswapd": 4000 + n}) for n in range(10)]
>>> new = [Counted(f"load {n}", "m", "6.12", 200_000, {"pgsteal_kswapd": 4100 - n}) for n in range(10)]
>>> [answer] = compare_kernels(old + new, "6.1", "6.12").answers
>>> answer.verdict, round(answer.ratio, 2)
('fewer', 0.51)

Nothing is replayed. Recordings of a load are of different lengths, so counters are those of as many pages allocated. A load that was
recorded several times under a kernel enters with its mean; answers are about loads, and with fewer than ten of them none is told for sure.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from .. import _nearpage
from ..errors import ArgumentError
from .answers import QUESTIONS
from .pairs import ratio
from .judge import family, judge, least_units

Verdict = Literal["fewer", "more", "perhaps fewer", "perhaps more", "no difference can be told", "the same", "too few"]

#: What a kernel counts that says something about its page allocator: others are kept if they are asked for.
COUNTERS = (
    "refills", "refill_pages", "drains", "drain_pages", "numa_miss", "numa_foreign", "numa_other", "pgsteal_kswapd", "pgsteal_direct", "pgscan_kswapd",
    "pgscan_direct", "allocstall_normal", "allocstall_movable", "allocstall_dma32", "compact_stall", "compact_success", "compact_fail",
    "compact_migrate_scanned", "thp_fault_alloc", "thp_fault_fallback", "pgmajfault", "pgmigrate_success", "kswapd_low_wmark_hit_quickly",
)  # fmt: skip


@dataclass(frozen=True)
class Counted:
    """What a kernel counted while a load ran."""

    load: str
    machine: str
    kernel: str
    #: Pages allocated meanwhile.
    pages: int
    counters: Mapping[str, int]

    @staticmethod
    def of(bundle: _nearpage.Bundle, load: str, machine: str = "") -> Counted:
        """Of a recording: what /proc/vmstat gained from ``before`` to ``after``, and refills and drains of its trace."""
        rows = bundle.counters().to_dicts()
        gained = {row["counter"]: row["after"] - row["before"] for row in rows if row["after"] >= row["before"]}
        if not gained:
            accepted = "a bundle with vmstat before and after"
            raise ArgumentError(f"{bundle.name}: it tells no counters, expected {accepted}", bundle.name, accepted)
        for row in bundle.replay().fidelity.rows.to_dicts():
            if row["where"] == "all" and row["quantity"] in COUNTERS and row["recorded"] is not None and row["at"] is None:
                gained[row["quantity"]] = row["recorded"]
        pages = sum(count for name, count in gained.items() if name.startswith("pgalloc_"))
        return Counted(load, machine, bundle.kernel, pages, gained)


@dataclass(frozen=True)
class CounterAnswer:
    """A counter of kernel ``b`` beside that of kernel ``a``, for as many pages allocated."""

    counter: str
    #: Of each load: its name, and the ratio.
    loads: tuple[tuple[str, float], ...]
    ratio: float
    low: float | None
    high: float | None
    p: float | None
    verdict: Verdict


@dataclass(frozen=True)
class KernelComparison:
    """All counters. A verdict hangs on its own counter alone, at a level that leaves room for some (``answers.QUESTIONS``)."""

    a: str
    b: str
    answers: list[CounterAnswer]
    #: Loads that were recorded under one of them alone.
    alone: tuple[str, ...]

    def __str__(self) -> str:
        lines = [f"{self.b} against {self.a}"]
        for of in self.answers:
            room = "" if of.low is None or of.high is None else f" ({of.low:.3f} to {of.high:.3f})"
            lines.append(f"{of.counter}: x{of.ratio:.3f}{room} over {len(of.loads)} loads: {of.verdict}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><td>{html.escape(of.counter)}</td><td>{of.ratio:.3f}</td><td>{len(of.loads)}</td><td>{of.verdict}</td></tr>" for of in self.answers)
        head = "<tr><th>counter</th><th>ratio</th><th>loads</th><th>verdict</th></tr>"
        return f"<p>{html.escape(self.b)} against {html.escape(self.a)}</p><table>{head}{rows}</table>"


def compare_kernels(
    recordings: Iterable[Counted],
    a: str,
    b: str,
    *,
    counters: Sequence[str] = COUNTERS,
    confidence: float = 0.95,
    seed: int = 0,
) -> KernelComparison:
    """Compares kernel ``b`` with kernel ``a``; the beginning of a release will do. Loads are the same if their machines are, too.

    Raises :class:`nearpage.ArgumentError`.
    """
    by_kernel: dict[str, dict[tuple[str, str], list[Counted]]] = {a: {}, b: {}}
    known = set()
    for of in recordings:
        known.add(of.kernel)
        for wanted in (a, b):
            if of.kernel == wanted or of.kernel.startswith((f"{wanted}.", f"{wanted}-")):
                by_kernel[wanted].setdefault((of.load, of.machine), []).append(of)
    for wanted in (a, b):
        if not by_kernel[wanted]:
            accepted = "one of " + ", ".join(sorted(known)) if known else "recordings"
            raise ArgumentError(f"there is no recording of {wanted}, expected {accepted}", "kernel", accepted)
    common = sorted(by_kernel[a].keys() & by_kernel[b].keys())
    alone = sorted(by_kernel[a].keys() ^ by_kernel[b].keys())
    told: list[tuple[str, dict[str, float]]] = []
    for counter in counters:
        logs = {}
        for key in common:
            found = _log_ratio(counter, by_kernel[a][key], by_kernel[b][key])
            if found is not None:
                logs[" on ".join(filter(None, key))] = found
        if logs:
            told.append((counter, logs))
    return KernelComparison(a, b, _answers(told, confidence, seed), tuple(" on ".join(filter(None, key)) for key in alone))


def _log_ratio(counter: str, of_a: Sequence[Counted], of_b: Sequence[Counted]) -> float | None:
    """The mean logarithm of ``b`` less that of ``a``, both for as many pages as their mean; nothing if neither counted any."""
    sides = [[of for of in side if counter in of.counters and of.pages > 0] for side in (of_a, of_b)]
    if not all(sides) or not any(of.counters[counter] for side in sides for of in side):
        return None
    pages = math.fsum(of.pages for side in sides for of in side) / sum(map(len, sides))
    scaled = [[of.counters[counter] * pages / of.pages for of in side] for side in sides]
    first, second = (math.fsum(math.log(ratio(count, 0)) for count in side) / len(side) for side in scaled)
    return second - first


def _answers(told: Sequence[tuple[str, dict[str, float]]], confidence: float, seed: int) -> list[CounterAnswer]:
    names = sorted({load for _, logs in told for load in logs})
    values = [np.array(list(logs.values())) for _, logs in told]
    columns = [(np.array([names.index(load) for load in logs]), of, np.ones(len(of))) for (_, logs), of in zip(told, values)]
    together = family(columns, len(names), seed=seed)
    answers = []
    for (counter, logs), of, p in zip(told, values, together):
        known = judge(of, confidence=confidence)
        is_few = known.units < least_units(1.0 - confidence)
        verdict: Verdict = "no difference can be told"
        if is_few:
            verdict = "too few"
        elif not of.any():
            verdict = "the same"
        elif side := known.side((1.0 - confidence) / QUESTIONS):
            verdict = "fewer" if side < 0 else "more"
        elif side := known.side(1.0 - confidence):
            verdict = "perhaps fewer" if side < 0 else "perhaps more"
        low, high = (None if is_few else math.exp(min(max(end, -700.0), 700.0)) for end in (known.low, known.high))
        loads = tuple((load, math.exp(log)) for load, log in logs.items())
        answers.append(CounterAnswer(counter, loads, math.exp(known.mean), low, high, None if is_few else max(float(p), known.p), verdict))
    return answers
