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


def test_objects_are_memory_that_numpy_wraps_and_go_back() -> None:
    numpy = pytest.importorskip("numpy")
    memory = nearpage.Memory(NODE, nodes=2)
    cache = memory.cache("packets", 200, align=64)
    assert (cache.name, cache.object_bytes, cache.stats()["stride_bytes"]) == ("packets", 200, 256)
    one = cache.alloc(node=memory.nodes[1])
    assert one.node == memory.nodes[1] and (one.nbytes, len(one), one.address % 64) == (200, 200, 0)
    view = numpy.asarray(one)
    assert view.shape == (200,) and not view.any()
    view[:] = 7
    many = cache.alloc_many(1000)
    assert len({of.address for of in many}) == 1000 and one.address not in {of.address for of in many}
    assert all(not numpy.asarray(of).any() for of in many)
    row = next(line.split() for line in memory.slabinfo().splitlines() if line.startswith("packets "))
    # Those that stacks of CPUs keep are not in slabs, either.
    assert 1001 <= int(row[1]) <= 1200
    # A view holds its object, the object its cache, and the cache its memory.
    del one, many, cache
    gc.collect()
    assert (view == 7).all() and "packets" in memory.slabinfo()
    with pytest.raises(nearpage.ArgumentError, match="packets"):
        memory.cache("packets", 8)
    held = view
    del memory, view
    gc.collect()
    assert held.sum() == 1400


def test_a_cache_without_objects_goes_and_its_name_is_free() -> None:
    memory = nearpage.Memory(NODE, nodes=1)
    for size in (8, 4096, 24):
        cache = memory.cache("again", size)
        assert cache.alloc().nbytes == size
        gc.collect()
        assert cache.shrink() >= 1
        del cache
    assert "again" not in memory.slabinfo()
    memory.check()
    for name, size, align in (("two words", 8, 8), ("none", 0, 8), ("odd", 8, 3)):
        with pytest.raises(nearpage.ArgumentError, match="expected a word") as caught:
            memory.cache(name, size, align=align)
        assert caught.value.place == "cache"


def test_memory_of_any_size() -> None:
    numpy = pytest.importorskip("numpy")
    memory = nearpage.Memory(NODE, nodes=2)
    sizes = [1, 8, 100, 8192, 8193, 100_000, 1 << 20]
    blocks = [memory.alloc_bytes(size, node=memory.nodes[1]) for size in sizes]
    for size, block in zip(sizes, blocks):
        view = numpy.asarray(block)
        assert (block.node, block.nbytes, len(view)) == (memory.nodes[1], size, size) and not view.any()
        view[:] = 255
    assert memory.alloc_bytes(100, align=4096).address % 4096 == 0
    with pytest.raises(nearpage.AllocationError):
        memory.alloc_bytes(1 << 40)
    with pytest.raises(nearpage.ArgumentError, match="nbytes=0, expected 1 or more"):
        memory.alloc_bytes(0)
    with pytest.raises(nearpage.ArgumentError, match="power of two"):
        memory.alloc_bytes(8, align=3)
    with pytest.raises(nearpage.ArgumentError, match="expected one of"):
        memory.alloc_bytes(8, node=77)
    del blocks, block, view
    gc.collect()
    memory.shrink()
    memory.check()


def test_limits_hold() -> None:
    memory = nearpage.Memory(NODE, nodes=2)
    node = memory.nodes[1]
    assert memory.limits() == (None, None)
    memory.set_limits(1 << 20, 1 << 19, node=node)
    assert memory.limits(node=node) == (1 << 20, 1 << 19) and memory.limits() == (None, None)
    blocks: list[nearpage.Pages] = []
    with pytest.raises(nearpage.AllocationError, match="limit"):
        while len(blocks) < 1000:
            blocks.append(memory.alloc(policy="bind", nodes=[node]))
    assert len(blocks) <= 256 and memory.in_use(node=node) <= 256
    memory.set_limits(node=node)
    assert memory.alloc(policy="bind", nodes=[node]).node == node
    with pytest.raises(nearpage.ArgumentError, match="soft limit"):
        memory.set_limits(1 << 20, 1 << 20)
    with pytest.raises(nearpage.ArgumentError):
        memory.in_use(node=77)


def test_counters_are_a_table() -> None:
    memory = nearpage.Memory(NODE, nodes=2)
    before = memory.stats().to_dicts()
    blocks = [memory.alloc(policy="bind", nodes=[memory.nodes[1]]) for _ in range(10)]
    rows = memory.stats().to_dicts()
    assert [row["node"] for row in rows] == memory.nodes and len(blocks) == 10
    assert sum(row["numa_hit"] for row in rows) == sum(row["numa_hit"] for row in before) + 10
    assert rows[1]["in_use_pages"] >= 10 and all(row["managed_pages"] >= row["free_pages"] for row in rows)
    assert "<table>" in memory._repr_html_() and "Node 0" in memory.buddyinfo()


def test_threads_share_a_cache() -> None:
    from concurrent.futures import ThreadPoolExecutor

    memory = nearpage.Memory(NODE, nodes=2)
    cache = memory.cache("shared", 64)

    def work(seed: int) -> int:
        kept = []
        for at in range(2000):
            kept.append(cache.alloc())
            if (at * seed) % 3:
                kept.pop(len(kept) // 2)
        return len({of.address for of in kept}) - len(kept)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, [1, 2, 4, 5])) == [0] * 4
    gc.collect()
    cache.shrink()
    memory.check()
