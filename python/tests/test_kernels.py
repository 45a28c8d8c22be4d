"""Two kernels in what they counted, against constructed truth and recordings."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

np = pytest.importorskip("numpy")
pytest.importorskip("pyarrow")

import nearpage  # noqa: E402
from nearpage.fleet.kernels import Counted, compare_kernels  # noqa: E402

BUNDLES = Path(__file__).parents[2] / "bundles"


def made(loads: int, times: int = 2, seed: int = 5) -> list[Counted]:
    """Recordings of two kernels: the newer one steals a third as often, and stalls as often, but for noise; lengths differ."""
    draws = np.random.default_rng(seed)
    recordings = []
    for load in range(loads):
        rate = math.exp(draws.normal(4, 1))
        for kernel, factor in (("6.1.9-x", 1.0), ("6.12.3-x", 1 / 3)):
            for _ in range(times):
                pages = int(10 ** draws.uniform(5, 6.5))
                noise = [math.exp(draws.normal(0, 0.1)) for _ in range(2)]
                stolen, stalls = (pages / 1000 * rate * part for part in (factor * noise[0], noise[1]))
                recordings.append(Counted(f"load {load}", "m", kernel, pages, {"pgsteal_kswapd": round(stolen), "compact_stall": round(stalls), "pgmajfault": 0}))
    return recordings


def test_a_planted_difference_is_told_whatever_the_lengths_are() -> None:
    answers = {of.counter: of for of in compare_kernels(made(12), "6.1", "6.12").answers}
    stolen = answers["pgsteal_kswapd"]
    assert stolen.verdict == "fewer" and stolen.low is not None and stolen.high is not None and stolen.low < 1 / 3 < stolen.high
    assert answers["compact_stall"].verdict == "no difference can be told"
    # What neither counted is no answer.
    assert "pgmajfault" not in answers


def test_few_loads_and_lone_loads_are_told() -> None:
    few = compare_kernels([*made(3, times=5), Counted("other", "m", "6.1.9-x", 1000, {})], "6.1", "6.12")
    assert {of.verdict for of in few.answers} == {"too few"} and few.alone == ("other on m",)
    assert "pgsteal_kswapd: x0.3" in str(few) and "too few" in few._repr_html_()


def test_a_kernel_is_named_by_its_release() -> None:
    with pytest.raises(nearpage.ArgumentError, match="no recording of 6.6, expected one of 6.1.9-x, 6.12.3-x"):
        compare_kernels(made(1), "6.1", "6.6")
    with pytest.raises(nearpage.ArgumentError):
        compare_kernels([], "6.1", "6.12")


def test_recordings_tell_what_their_kernels_counted() -> None:
    older = Counted.of(nearpage.Bundle.open(BUNDLES / "q61-n3-asym.tar.zst"), "asym")
    newer = Counted.of(nearpage.Bundle.open(BUNDLES / "q612-n4-asym.tar.zst"), "asym")
    assert older.kernel.startswith("6.1.") and older.pages > 10_000
    compared = compare_kernels([older, newer], "6.1", "6.12")
    refills = next(of for of in compared.answers if of.counter == "refills")
    # 6.12 refills more at once: that is what its pagesets are for.
    assert refills.ratio < 0.5 and refills.verdict == "too few"


def test_examples_of_docstrings_run() -> None:
    import doctest

    from nearpage.fleet import kernels

    tested = doctest.testmod(kernels)
    assert tested.attempted and not tested.failed
