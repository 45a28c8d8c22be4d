"""Coverage, false tellings and power of answers, simulated over shapes of fleets: the table of *Answers about many loads* in the book.

    python python/tests/simulate_answers.py            # two minutes
    python python/tests/simulate_answers.py --rounds 40 tail

A shape is how the logarithms of ratios lie over units. *Held* is how often the interval of the mean, and that of the typical unit, hold the truth.
*Told* is how many families of 15 and 24 questions have a difference told where there is none: once such that the mean has none, once such
that the typical unit has none; the worse of the two. *Power* is how often a difference is told that sign-flips of the mean with Bonferroni's
correction for 15 questions tell 97 times in 100, beside theirs.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nearpage.fleet.answers import QUESTIONS
from nearpage.fleet.judge import flip_probability, judge, signed_ranks

Reals = npt.NDArray[np.float64]
LEVEL = 0.05
FAMILIES = (15, 24)
#: Questions of a family whose intervals are looked at.
HELD = 2
SEED = 53


@dataclass(frozen=True)
class Shape:
    """Logarithms of ratios of some units, and the weights of the units, drawn anew each time."""

    name: str
    units: int
    draw: Callable[[Any, int], Reals]
    #: How probable it is that a sample has none of what matters: more than 1 in 400 cannot be seen.
    unseen: float = 0.0
    is_symmetric: bool = True
    weigh: Callable[[Any, int], Reals] | None = None


def normal(draws: Any, units: int) -> Reals:
    return np.asarray(draws.standard_normal(units))


def hosts(draws: Any, units: int) -> Reals:
    """Ten recordings of each host, which are much alike, as their mean."""
    recordings = 0.9 * draws.standard_normal((units, 1)) + 0.44 * draws.standard_normal((units, 10))
    return np.asarray(recordings.mean(axis=1))


def uneven_hosts(draws: Any, units: int) -> Reals:
    counts = draws.integers(1, 31, units)
    return np.array([0.9 * draws.standard_normal() + 0.44 * draws.standard_normal(count).mean() for count in counts])


def twins(draws: Any, units: int) -> Reals:
    """Eight twins of each recording, which differ by little, as their mean."""
    return np.asarray((draws.standard_normal((units, 1)) + 0.1 * draws.standard_normal((units, 8))).mean(axis=1))


def counts(draws: Any, units: int) -> Reals:
    """Small counts, as of holds of quiet hosts: (n + 32) / (n + 32)."""
    sizes = np.exp(draws.normal(4.0, 1.0, units))
    return np.asarray(np.log((draws.poisson(sizes) + 32.0) / (draws.poisson(sizes) + 32.0)))


def tail(share: float, factor: float) -> Callable[[Any, int], Reals]:
    """Some are so many times worse, and the others 5 % better."""
    return lambda draws, units: np.where(draws.random(units) < share, math.log(factor), math.log(0.95)) + draws.normal(0, 0.02, units)


def tails(share: float, factor: float, *units: int) -> list[Shape]:
    what = f"1 in {1 / share:.0f} ×{factor:g}, others 5 % better"
    return [Shape(what, count, tail(share, factor), (1 - share) ** count, False) for count in units]


SHAPES = [
    Shape("normal", 16, normal),
    Shape("normal", 10, normal),
    Shape("heavy tails (t, 3)", 16, lambda draws, units: np.asarray(draws.standard_t(3, units))),
    Shape("two kinds, ±10 %", 16, lambda draws, units: np.where(draws.random(units) < 0.5, 0.1, -0.1) + draws.normal(0, 0.02, units)),
    Shape("half without a difference", 16, lambda draws, units: np.where(draws.random(units) < 0.5, 0.0, draws.standard_normal(units))),
    Shape("small counts", 16, counts),
    Shape("skewed (lognormal, 0.5)", 16, lambda draws, units: np.asarray(draws.lognormal(0, 0.5, units)), is_symmetric=False),
    Shape("much skewed (exponential)", 24, lambda draws, units: np.asarray(draws.exponential(1, units)), is_symmetric=False),
    Shape("20 hosts, 10 recordings of each", 20, hosts),
    Shape("16 hosts, 1 to 30 recordings of each", 16, uneven_hosts),
    Shape("12 recordings, 8 twins of each", 12, twins),
    Shape("weights of traffic (Pareto, 2)", 24, normal, weigh=lambda draws, units: np.asarray(draws.pareto(2, units) + 1)),
    *tails(0.25, 2, 24, 36),
    *tails(0.1, 4, 60, 6, 9, 12),
]


@dataclass(frozen=True)
class Found:
    """What a shape came to: shares."""

    mean: float
    typical: float
    families: tuple[float, ...]
    power: float | None
    of_flips: float | None


def simulate(shape: Shape, rounds: int, *, seed: int = SEED) -> Found:
    """Draws fleets of a shape."""
    draws = np.random.default_rng([seed, shape.units, *shape.name.encode()])
    large = np.zeros(2) if shape.is_symmetric else shape.draw(draws, 1 << 21)
    truth, typical = (float(large.mean()), float(np.median(large[: 1 << 20] + large[1 << 20 :])) / 2) if not shape.is_symmetric else (0.0, 0.0)
    held, told = np.zeros(2), np.zeros((2, len(FAMILIES)))
    most, level = max(FAMILIES), LEVEL / QUESTIONS
    for _ in range(rounds):
        weights = [shape.weigh(draws, shape.units) if shape.weigh else np.ones(shape.units) for _ in range(most)]
        values = np.stack([shape.draw(draws, shape.units) for _ in range(most)])
        for own, weight in list(zip(values, weights))[:HELD]:
            known = judge(own - truth, weight)
            held += known.low <= 0 <= known.high, known.typical_low <= typical - truth <= known.typical_high
        for null, middle in enumerate((truth,) if truth == typical else (truth, typical)):
            # Of those whose ranks do not tell a difference nothing does: the rest is not looked at.
            first = next((at for at, own in enumerate(values - middle) if _ranks_tell(own, weights[at], level) and judge(own, weights[at]).side(level)), most)
            told[null] += [first < size for size in FAMILIES]
    power, of_flips = _power(shape, draws, truth, rounds) if shape.is_symmetric else (None, None)
    shares = held / (rounds * HELD)
    return Found(float(shares[0]), float(shares[1]), tuple(float(share) for share in (told / rounds).max(axis=0)), power, of_flips)


def _ranks_tell(values: Reals, weights: Reals, level: float) -> bool:
    ranks = signed_ranks(values, weights)
    # Nearly all are far from it: of ranks two standard deviations are never that improbable.
    if np.ptp(weights) == 0 and abs(float(ranks.sum())) < 2.0 * math.sqrt(float((ranks**2).sum())):
        return False
    return flip_probability(ranks) <= level


def _power(shape: Shape, draws: Any, truth: float, rounds: int) -> tuple[float, float]:
    samples = [(shape.draw(draws, shape.units) - truth, shape.weigh(draws, shape.units) if shape.weigh else np.ones(shape.units)) for _ in range(rounds)]
    spread = float(np.std(np.concatenate([values for values, _ in samples])))

    def flips(effect: float) -> float:
        return sum(flip_probability((values + effect) * weights) <= LEVEL / FAMILIES[0] for values, weights in samples) / rounds

    least, most = 0.0, 8.0 * spread
    for _ in range(9):
        middle = (least + most) / 2
        least, most = (middle, most) if flips(middle) < 0.97 else (least, middle)
    own = sum(judge(values + most, weights).side(LEVEL / QUESTIONS) > 0 for values, weights in samples)
    return own / rounds, flips(most)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200, help="fleets of 24 questions a shape (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("words", nargs="*", help="shapes whose names have one of these")
    given = parser.parse_args()
    print("| shape | units | mean held | typical held | told of 15 | told of 24 | power, of sign-flips |\n|---|---|---|---|---|---|---|")
    for shape in SHAPES:
        if given.words and not any(word in shape.name for word in given.words):
            continue
        found = simulate(shape, given.rounds, seed=given.seed)
        power = "" if found.power is None else f"{found.power:.3f}, {found.of_flips:.3f}"
        name = f"{shape.name} ({100 * shape.unseen:.0f} % of samples without)" if shape.unseen > 1 / 400 else shape.name
        families = " | ".join(f"{share:.3f}" for share in found.families)
        print(f"| {name} | {shape.units} | {found.mean:.3f} | {found.typical:.3f} | {families} | {power} |", flush=True)


if __name__ == "__main__":
    main()
