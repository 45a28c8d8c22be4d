"""One question about differences of units (loads, hosts): the typical unit, the mean, how many are made worse, and how probable by chance.

>>> logs = np.log([0.8, 0.7, 0.9, 0.75, 0.85, 0.95, 0.6, 0.8, 0.9, 0.7])
>>> judged = judge(logs)
>>> round(judged.p, 4), judged.low < judged.mean < judged.high < 0
(0.002, True)

Nothing here depends on what else is asked, nor on a seed: a question has one answer.

*The typical unit* is the pseudo-median (Hodges & Lehmann 1963), its probability that of signed ranks (Wilcoxon) under all signs of units,
counted and not drawn. It holds for small numbers and for heavy tails, and says nothing about a part of the units that is worse.

*The mean* is what a fleet pays as a whole. Its interval is of the studentized bootstrap: the wider one, at each end, of equal tails and of
the absolute value (Efron & Tibshirani 1993, chapter 12), with draws that are always the same. It sees a tail if the sample has some of it.

*Tails* against the mean make it uncertain before its interval at the usual level shows them. So where a unit on the other side lies more than half
as far out as the farthest on the mean's side, a side is told only if the mean alone tells it, at half the level. In simulated fleets whose
mean has no difference this leaves a fifth of false tellings of much skewed ones, and takes little power from symmetric ones.
Tails that the sample has none of are seen by no interval. :func:`worse_share` and :func:`unseen_share` bound how large they may be.

SciPy has the ranks and the binomial interval; it lacks weights in signed ranks and the studentized bootstrap, which are here.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

__all__ = ["Judged", "family", "flip_probability", "judge", "least_units", "signed_ranks", "unseen_share", "worse_share"]

Reals = npt.NDArray[np.float64]

_RESAMPLES = 9999
#: How far out a unit may lie on the other side, as a part of the farthest on the side that is told.
_OPPOSED = 0.5
#: Units of which all combinations of signs are counted.
_COUNTED = 24
#: Units above which sums of signed scores are taken as normal.
_NORMAL = 200
#: Steps that weighted scores are rounded to: what rounding may move is taken for as far.
_GRID = 1 << 14


@dataclass(frozen=True)
class Judged:
    """What is known of a question. Values are logarithms of ratios."""

    units: int
    mean: float
    #: The interval of the mean; infinite where there are too few units, or where the weight of one is all.
    low: float
    high: float
    typical: float
    typical_low: float
    typical_high: float
    #: How probable ranks this far to one side are by chance, for a typical unit without a difference.
    p: float
    #: The same of the studentized mean.
    p_mean: float
    #: How far out the farthest unit on the other side of 0 than the mean lies, as a part of the farthest on its side.
    opposed: float

    def side(self, level: float) -> int:
        """-1 or 1 where a difference is told at a level: the typical unit and the mean's interval on one side of 0, ranks that improbable, and
        no tail on the other side, or a mean that tells it in spite of that. Else 0."""
        if self.p > level or self.opposed > _OPPOSED and self.p_mean > level / 2.0:
            return 0
        return -1 if self.high < 0 and self.typical < 0 else 1 if self.low > 0 and self.typical > 0 else 0


def least_units(level: float) -> int:
    """The fewest units of which all of one sign are that improbable: 6 at 0.05."""
    return 1 + math.ceil(-math.log2(level) - 1e-9)


def judge(logs: Reals, weights: Reals | None = None, *, confidence: float = 0.95) -> Judged:
    """Judges differences of units, each with its weight; without weights all count the same."""
    values = np.asarray(logs, float)
    count = len(values)
    shares = np.ones(count) if weights is None else np.asarray(weights, float) * count / np.sum(weights)
    mean = float(np.average(values, weights=shares)) if count else math.nan
    level = 1.0 - confidence
    if count < least_units(level):
        typical = float(np.median(values)) if count else math.nan
        return Judged(count, mean, -math.inf, math.inf, typical, -math.inf, math.inf, 1.0, 1.0, 1.0)
    low, high, p_mean = _mean_interval(values, shares, level)
    if np.ptp(values) <= 1e-12 * max(1.0, abs(mean)):
        # All the same: the only question left is whether that is no difference.
        return Judged(count, mean, low, high, mean, mean, mean, p_mean, p_mean, 0.0)
    is_plain = np.ptp(shares) <= 1e-12 and count <= _NORMAL
    typical, typical_low, typical_high = _typical(values, level) if is_plain else _weighted_typical(values, shares, level)
    along = values if mean >= 0 else -values
    opposed = max(-float(along.min()), 0.0) / float(along.max())
    return Judged(count, mean, low, high, typical, typical_low, typical_high, flip_probability(signed_ranks(values, shares)), p_mean, opposed)


def _typical(values: Reals, level: float) -> tuple[float, float, float]:
    """The median of the means of all pairs, and those of them that bound it."""
    count = len(values)
    at = np.triu_indices(count)
    pairs = np.sort((values[at[0]] + values[at[1]]) / 2.0)
    # Ranks without ties: whichever value is taken off but for those of pairs.
    above = _grid(tuple(range(1, count + 1)))
    # The sum of ranks of one sign is at most so large as rarely as the level says.
    beyond = max(int(np.searchsorted(1.0 - np.append(above[1:], 0.0), level / 2.0)), 1)
    return float(np.median(pairs)), float(pairs[beyond - 1]), float(pairs[len(pairs) - beyond])


def _weighted_typical(values: Reals, shares: Reals, level: float) -> tuple[float, float, float]:
    """The same with weights, and of many units: the value that, taken off, leaves ranks in balance, and those that it can just be told
    from."""
    typical = _bisected(lambda at: float(signed_ranks(values - at, shares).sum()) <= 0.0, float(values.min()), float(values.max()))
    margin = float(np.ptp(values))

    def is_beyond(at: float) -> bool:
        return flip_probability(signed_ranks(values - at, shares)) <= level

    ends = (-1, float(values.min()) - margin), (1, float(values.max()) + margin)
    low, high = (_bisected(is_beyond, typical, end) if is_beyond(end) else sign * math.inf for sign, end in ends)
    return typical, low, high


def _bisected(is_there: Callable[[float], bool], without: float, with_: float) -> float:
    """Where a condition begins to hold, between a value of which it does not and one of which it does."""
    least = 1e-7 * abs(with_ - without)
    while abs(with_ - without) > least:
        middle = (without + with_) / 2
        if is_there(middle):
            with_ = middle
        else:
            without = middle
    return (without + with_) / 2


def signed_ranks(values: Reals, shares: Reals) -> Reals:
    """Ranks of the absolute values with their signs; 0 has none (Pratt 1959)."""
    ranks: Reals = stats.rankdata(np.abs(values)) * np.sign(values) * shares
    return ranks


def flip_probability(scores: Reals) -> float:
    """How many of all combinations of signs make the sum of scores as far from 0 as it is.

    Counted up to 24 scores, on a grid up to 200, normal beyond.
    """
    sizes = np.abs(scores[scores != 0])
    observed = abs(float(np.sum(scores)))
    if len(sizes) == 0:
        return 1.0
    whole = float(sizes.sum())
    if len(sizes) > _NORMAL:
        return float(2.0 * stats.norm.sf(observed / math.sqrt(float((sizes**2).sum()))))
    if len(sizes) > _COUNTED:
        # Ranks are whole or half of whole numbers, and counted as they are; weights make others of them.
        is_of_ranks = bool(np.all(2.0 * sizes == np.rint(2.0 * sizes)))
        scale = 2.0 if is_of_ranks else _GRID / whole
        steps = np.rint(sizes * scale).astype(int)
        return _on_grid(tuple(np.sort(steps).tolist()), observed * scale - (0.0 if is_of_ranks else math.sqrt(len(steps))))
    ordered = np.sort(sizes)
    first, second = np.sort(_sums(ordered[::2])), _sums(ordered[1::2])
    # Sums that are the same but for the last digits are as far.
    least = observed - 1e-9 * whole
    as_far = (len(first) - np.searchsorted(first, least - second, side="left")).sum()
    return min(1.0, 2.0 * float(as_far) / (len(first) * len(second)))


def _sums(sizes: Reals) -> Reals:
    sums = np.zeros(1)
    for size in sizes:
        sums = np.concatenate([sums + size, sums - size])
    return sums


@functools.lru_cache(maxsize=256)
def _grid(steps: tuple[int, ...]) -> Reals:
    """The probability of each sum of those that are positive, and all above it."""
    chances = np.zeros(sum(steps) + 1)
    chances[0] = 1.0
    for step in steps:
        moved = np.zeros_like(chances)
        moved[step:] = chances[: len(chances) - step]
        chances = (chances + moved) / 2.0
    return np.cumsum(chances[::-1])[::-1]


def _on_grid(steps: tuple[int, ...], observed: float) -> float:
    above = _grid(steps)
    place = math.ceil((sum(steps) + observed) / 2.0 - 1e-9)
    return min(1.0, 2.0 * float(above[min(max(place, 0), len(above) - 1)]))


@functools.lru_cache(maxsize=64)
def _draws(count: int) -> Reals:
    return np.random.default_rng(1).multinomial(count, [1.0 / count] * count, size=_RESAMPLES).astype(float)


def _mean_interval(values: Reals, shares: Reals, level: float) -> tuple[float, float, float]:
    """The ends of the interval, and the level at which it would reach 0."""
    count = len(values)
    mean = float(np.average(values, weights=shares))
    about = values - mean
    scale = float(np.max(np.abs(about)))
    if scale <= 1e-12 * max(1.0, abs(mean)):
        return mean, mean, 1.0 if abs(mean) <= 1e-12 else 2.0 ** (1 - count)
    times = _draws(count)
    # Of a weighted mean what enters its error is each unit's share times its distance.
    parts = shares * about
    error = math.sqrt(float((parts**2).sum()) / (count * (count - 1)))
    total, sums, squares, crossed, shared = (times @ np.stack([shares, parts, parts**2, shares * parts, shares**2], axis=1)).T
    with np.errstate(invalid="ignore", divide="ignore"):
        moved = sums / total
        squares = squares - 2.0 * moved * crossed + moved**2 * shared
        errors = np.sqrt(np.maximum(squares, 0.0) * count / (count - 1)) / total
        studentized = moved / errors
    is_still = errors <= 1e-9 * scale / math.sqrt(count)
    studentized = np.where(is_still, np.where(np.abs(moved) <= 1e-12 * scale, 0.0, np.copysign(np.inf, moved)), studentized)
    sizes, last = np.abs(studentized), _RESAMPLES - 1
    at = math.floor(level / 2 * last), math.ceil((1 - level / 2) * last), math.ceil((1 - level) * last)
    ordered = np.partition(studentized, at[:2])
    least, most, both = float(ordered[at[0]]), float(ordered[at[1]]), float(np.partition(sizes, at[2])[at[2]])
    observed = mean / error
    beyond = studentized >= observed if observed > 0 else studentized <= observed
    as_far = max(int((sizes >= abs(observed)).sum()), 2 * int(beyond.sum()))
    return mean - max(both, most) * error, mean + max(both, -least) * error, min((as_far + 1) / (_RESAMPLES + 1), 1.0)


def family(columns: list[tuple[npt.NDArray[np.int64], Reals, Reals]], units: int, *, flips: int = 9999, seed: int = 0) -> Reals:
    """For each question (places of its units, their values, their weights) how probable ranks as clear as its are anywhere among all of
    them, by drawn signs of units (max-T, Westfall & Young 1993)."""
    if not columns:
        return np.zeros(0)
    scores = np.zeros((units, len(columns)))
    for at, (places, values, weights) in enumerate(columns):
        ranks = signed_ranks(values, weights)
        size = math.sqrt(float((ranks**2).sum()))
        scores[places, at] = ranks / size if size > 0 else 0.0
    observed = np.abs(scores.sum(axis=0))
    draws = np.random.default_rng(seed)
    as_far = np.ones(len(columns))
    done = 0
    while done < flips:
        size = min(1024, flips - done)
        signs = draws.integers(0, 2, size=(size, units)) * 2.0 - 1.0
        most = np.abs(signs @ scores).max(axis=1)
        as_far += (most[:, None] >= observed[None, :] - 1e-9).sum(axis=0)
        done += size
    return as_far / (flips + 1)


def worse_share(worse: int, units: int, confidence: float = 0.95) -> tuple[float, float]:
    """The interval of the share of units that are worse, of what was seen (Clopper & Pearson 1934)."""
    if units == 0:
        return 0.0, 1.0
    found = stats.binomtest(worse, units).proportion_ci(confidence, method="exact")
    return float(found.low), float(found.high)


def unseen_share(units: int, confidence: float = 0.95) -> float:
    """How large a part of all units may be of a kind of which the sample has none: about 3 / n, the rule of three.

    >>> round(unseen_share(12), 2)
    0.22
    """
    return float(1.0 - (1.0 - confidence) ** (1.0 / units)) if units else 1.0
