"""Arguments that are not accepted: each is named, with what would be."""

from __future__ import annotations

from typing import Any, Callable

import pytest

import nearpage

NODE = 16 << 20
HUGE = 1 << 70
MEMORY = nearpage.Memory(NODE, nodes=2)
BUNDLE = nearpage.Bundle.shipped()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: BUNDLE.replay(cpus=HUGE), f"cpus={HUGE}, expected 0 to 4294967295"),
        (lambda: BUNDLE.replay(cpus=8, repeat=-1), "repeat=-1, expected 0 to 4294967295"),
        (lambda: BUNDLE.replay(starts=10**5000), "starts=a long number, expected 0 to 4294967295"),
        (lambda: BUNDLE.replay(settings={"pcp.batch": 10**5000}), "settings: a value cannot be shown, expected a number or a text"),
        (lambda: BUNDLE.sweep({}, threads=HUGE), f"threads={HUGE}, expected 0 to 18446744073709551615"),
        (lambda: BUNDLE.bound(["nearpage"], [(1, 1), (1, HUGE)]), f"points={HUGE}, expected 0 to 18446744073709551615"),
        (lambda: BUNDLE.twin("none", seed=-1), "seed=-1, expected 0 to 18446744073709551615"),
        (lambda: nearpage.Memory(HUGE), f"bytes_per_node={HUGE}, expected 0 to"),
        (lambda: nearpage.Memory(NODE, nodes=1 << 16), "nodes=65536, expected 0 to 65535"),
        (lambda: MEMORY.alloc(policy="bind", nodes=[0, -1]), "nodes=-1, expected 0 to 4294967295"),
        (lambda: MEMORY.alloc(HUGE), f"pages={HUGE}, expected 0 to"),
        (lambda: MEMORY.alloc_bytes(8, align=HUGE), f"align={HUGE}, expected 0 to"),
        (lambda: MEMORY.cache("many", 8).alloc_many(HUGE), f"count={HUGE}, expected 0 to"),
        (lambda: MEMORY.set_limits(HUGE), f"hard_bytes={HUGE}, expected 0 to"),
        (lambda: nearpage.bench(seed=HUGE), f"seed={HUGE}, expected 0 to"),
        (lambda: nearpage.lab.run("memoryless-slab", seed=-1), "seed=-1, expected 0 to"),
        (lambda: nearpage.top(processes=HUGE), f"processes={HUGE}, expected 0 to"),
        (lambda: nearpage.top(seconds=10**5000), "seconds: expected a number from 0 to 86400"),
    ],
)
def test_a_number_that_does_not_fit_is_named(call: Callable[[], Any], said: str) -> None:
    with pytest.raises(nearpage.ArgumentError) as caught:
        call()
    assert str(caught.value).startswith(said) and isinstance(caught.value, ValueError)
    assert caught.value.place == said.partition("=")[0].partition(":")[0]


def test_what_is_no_number_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="'cpus'"):
        BUNDLE.replay(cpus="8")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="'nodes'"):
        MEMORY.alloc(policy="bind", nodes="01")  # type: ignore[arg-type]
    assert MEMORY.alloc(node=None).order == 0


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: BUNDLE.sweep({"pcp.batch": []}), "over: pcp.batch has no value, expected a list of one or more"),
        (lambda: nearpage.lab.sweep("memoryless-slab", {"pcp.batch_scale_max": []}), "over: pcp.batch_scale_max has no value, expected"),
        (lambda: BUNDLE.replay(cpus=8, repeat=0), "repeat=0, expected 1 to 65536"),
        (lambda: BUNDLE.replay(repeat=0), "repeat=0, expected 1 to 65536"),
        (lambda: BUNDLE.replay(cpus=0), "cpus=0, expected 1 to 65536"),
        (lambda: MEMORY.alloc(node=9), "node=9, expected one of [0, 1]"),
        (lambda: nearpage.verify([]), "there is no recording, expected the path of one or more"),
    ],
)
def test_what_is_empty_or_not_there_is_named(call: Callable[[], Any], said: str) -> None:
    with pytest.raises(nearpage.ArgumentError) as caught:
        call()
    assert str(caught.value).startswith(said) and caught.value.expected
