"""Real memory of this process."""

from __future__ import annotations

import gc

import pytest

import nearpage

NODE = 16 << 20


def test_pages_are_memory_that_numpy_wraps_and_go_back() -> None:
    numpy = pytest.importorskip("numpy")
    memory = nearpage.Memory(NODE, nodes=2)
    assert len(memory.nodes) == 2
    before = memory.vmstat()
    block = memory.alloc(3)
    assert (block.order, block.nbytes, len(block)) == (2, 16384, 16384) and block.node in memory.nodes
    view = numpy.asarray(block)
    assert view.shape == (16384,) and not view.any()
    view[:4] = [1, 2, 3, 4]
    assert bytes(memoryview(view)[:4]) == b"\1\2\3\4"
    # The view holds the block.
    del block
    gc.collect()
    assert view[3] == 4
    memory.check()
    counted = memory.vmstat()["pgfree"]
    del view
    gc.collect()
    assert memory.vmstat()["pgfree"] > counted >= before["pgfree"]
    memory.check()


def test_pages_come_from_where_they_are_asked_for() -> None:
    memory = nearpage.Memory(NODE, nodes=2)
    first, second = memory.nodes
    assert memory.alloc(node=second).node == second
    assert memory.alloc(policy="bind", nodes=[second]).node == second
    assert memory.alloc(policy="preferred", nodes=[first]).node == first
    assert memory.free_pages(first) > 0 and "Node" in memory.zoneinfo()


def test_what_cannot_be_is_told() -> None:
    memory = nearpage.Memory(NODE, nodes=1)
    blocks = []
    with pytest.raises(nearpage.AllocationError) as caught:
        for _ in range(100):
            blocks.append(memory.alloc(1024))
    assert isinstance(caught.value, MemoryError) and 1 <= len(blocks) <= 4
    for wrong in (0, 1025):
        with pytest.raises(nearpage.ArgumentError, match="expected 1 to 1024"):
            memory.alloc(wrong)
    for call in (
        lambda: memory.alloc(policy="bind", nodes=[77]),
        lambda: memory.alloc(nodes=[0]),
        lambda: memory.alloc(policy="near"),  # type: ignore[arg-type]
        lambda: memory.free_pages(77),
        lambda: nearpage.Memory(NODE, nodes=0),
    ):
        with pytest.raises(nearpage.ArgumentError):
            call()


def test_interleaved_pages_come_from_each_node_in_turn() -> None:
    memory = nearpage.Memory(NODE, nodes=3)
    blocks = [memory.alloc(policy="interleave", nodes=memory.nodes[1:]) for _ in range(6)]
    first, second = memory.nodes[1:]
    assert [block.node for block in blocks] == [first, second] * 3
    with pytest.raises(nearpage.ArgumentError, match="interleave"):
        memory.alloc(policy="striped")  # type: ignore[arg-type]
