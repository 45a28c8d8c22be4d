"""Means of paired differences, with intervals and probabilities by the bootstrap, corrected for how many are looked at.

Clusters (loads) are what is drawn again, with replacement, so that an answer is about loads like these and not about their rows. All
comparisons of a family are drawn with the same clusters: what correlates stays correlated.

*Studentized.* Each resample gives ``t* = (mean* - mean) / error*``; an interval is ``mean +- q error`` with ``q`` a quantile of ``|t*|``
(Efron & Tibshirani 1993, chapter 12). Percentiles of ``mean*`` alone are too narrow for some dozen of clusters.

*Balanced.* ``q`` is taken at a level of its own for each comparison, the same level for all, such that all intervals of the family hold
together as often as asked for (Beran 1988; Westfall & Young 1993 for the probabilities). A comparison of which many resamples have no
spread at all, since most of its differences are the same, gets a wide interval and does not widen those of others.

*Small.* With ``n`` clusters of independent signs all are of one sign by chance in ``2**(1 - n)`` of all cases. No probability is below
that, and with fewer than :func:`least_clusters` there is no interval.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Reals = npt.NDArray[np.float64]

#: Resamples that are held at once.
_CHUNK = 2048


def least_clusters(confidence: float) -> int:
    """The fewest clusters of which all of one sign say something at this confidence: 6 at 0.95."""
    return 1 + math.ceil(-math.log2(1.0 - confidence) - 1e-9)


@dataclass(frozen=True)
class Means:
    """A mean for each comparison; ``nan`` where there are too few clusters."""

    counts: npt.NDArray[np.int64]
    means: Reals
    low: Reals
    high: Reals
    #: Of a mean as far from 0 as this by chance, by itself.
    alone: Reals
    #: The same for the family: as far as this anywhere.
    corrected: Reals


def means(differences: Reals, *, confidence: float = 0.95, resamples: int = 9999, seed: int = 0) -> Means:
    """Means of ``differences`` over clusters (rows), for each comparison (column). ``nan`` is a cluster without a pair.

    ``low`` and ``high`` hold for the whole family at once with ``confidence``.
    """
    comparisons = differences.shape[1]
    is_there = np.isfinite(differences)
    counts = is_there.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(is_there, differences, 0.0).sum(axis=0) / counts
    enough = counts >= least_clusters(confidence)
    low, high = np.full(comparisons, np.nan), np.full(comparisons, np.nan)
    alone, corrected = np.full(comparisons, np.nan), np.full(comparisons, np.nan)
    if enough.any():
        within = _Family(differences[:, enough], is_there[:, enough], mean[enough])
        spread, alone[enough], corrected[enough] = within.judge(1.0 - confidence, resamples, seed)
        low[enough], high[enough] = mean[enough] - spread, mean[enough] + spread
    return Means(counts, mean, low, high, alone, corrected)


class _Family:
    """Comparisons with enough clusters each."""

    def __init__(self, differences: Reals, is_there: npt.NDArray[np.bool_], mean: Reals) -> None:
        self.there = is_there.astype(np.float64)
        self.counts = self.there.sum(axis=0)
        # About its mean, so that squares lose no digits.
        self.about = np.where(is_there, differences - mean, 0.0)
        self.scale = np.max(np.abs(self.about), axis=0)
        self.mean = mean
        # Differences that are all the same but for the last digits have no spread.
        self.is_constant = self.scale <= 1e-12 * np.maximum(1.0, np.abs(mean))
        variance = (self.about**2).sum(axis=0) / (self.counts - 1)
        self.error = np.where(self.is_constant, 0.0, np.sqrt(variance / self.counts))

    def judge(self, alpha: float, resamples: int, seed: int) -> tuple[Reals, Reals, Reals]:
        """Half the widths of intervals, probabilities, and probabilities for the family."""
        drawn = np.abs(self._statistics(resamples, seed))
        observed = self._ratio(self.mean, self.error)
        # For each resample the share of resamples that are as far out: of its own comparison, then the least over the family.
        order = np.sort(drawn, axis=0)
        shares = np.empty_like(drawn)
        for at in range(drawn.shape[1]):
            shares[:, at] = resamples - np.searchsorted(order[:, at], drawn[:, at], side="left")
        least = np.sort(shares.min(axis=1)) / resamples
        level = max(float(np.quantile(least, alpha, method="lower")), 1.0 / resamples)
        as_far = resamples - np.array([np.searchsorted(order[:, at], abs(observed[at]), "left") for at in range(len(observed))])
        floor = 2.0 ** (1.0 - self.counts)
        alone = np.maximum((as_far + 1) / (resamples + 1), floor)
        alone = np.where(self.is_constant & (self.mean == 0), 1.0, alone)
        corrected = (np.searchsorted(least, as_far / resamples, side="right") + 1) / (resamples + 1)
        corrected = np.maximum(np.minimum(corrected, 1.0), alone)
        quantile = order[min(resamples - 1, math.ceil((1.0 - level) * resamples)), :]
        spread = np.where(self.is_constant, 0.0, quantile * np.where(self.error > 0, self.error, 1.0))
        return spread, alone, corrected

    def _statistics(self, resamples: int, seed: int) -> Reals:
        draws = np.random.default_rng(seed)
        clusters = len(self.there)
        out = np.empty((resamples, self.there.shape[1]))
        for begin in range(0, resamples, _CHUNK):
            size = min(_CHUNK, resamples - begin)
            weights = draws.multinomial(clusters, [1.0 / clusters] * clusters, size=size).astype(np.float64)
            count = weights @ self.there
            with np.errstate(invalid="ignore", divide="ignore"):
                mean = weights @ self.about / count
                square = weights @ self.about**2 / count
                variance = np.maximum(square - mean**2, 0.0) * count / (count - 1)
                # Below the digits of a double: the same value, drawn again and again.
                variance[variance <= 1e-14 * self.scale**2] = 0.0
                error = np.sqrt(variance / count)
            statistic = self._ratio(mean, error)
            statistic[count < 2] = np.inf
            statistic[:, self.is_constant] = 0.0
            out[begin : begin + size] = statistic
        return out

    @staticmethod
    def _ratio(mean: Reals, error: Reals) -> Reals:
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = mean / error
        return np.where(error > 0, ratio, np.where(mean == 0, 0.0, np.copysign(np.inf, mean)))
