"""Which worker gets which keys."""

from __future__ import annotations

from nearpage.fleet.study import Task
from nearpage.fleet.waiting import Waiting


def task(entry: str, seed: int) -> Task:
    return Task(entry, "linux-6.18", "{}", "", seed, "nothing", "0", "0")


def chunks(entry: str, count: int) -> list[list[Task]]:
    return [[task(entry, seed)] for seed in range(count)]


def test_a_worker_goes_on_with_its_entry_and_others_take_others() -> None:
    waiting = Waiting()
    waiting.add(chunks("a", 3) + chunks("b", 2) + chunks("c", 1))
    assert waiting.entries() == 3
    assert waiting.take(None, [])[0].entry == "a"
    assert waiting.take(None, ["a"])[0].entry == "b"
    assert waiting.take("b", ["a"])[0].entry == "b"
    assert waiting.take("b", ["a"])[0].entry == "c", "nobody is at it"
    assert waiting.take("a", ["c"])[0].entry == "a"
    assert waiting.take("c", ["a"])[0].entry == "a", "what is left is helped with"
    assert waiting.entries() == 0
    assert waiting.take("a", []) == []


def test_help_goes_where_most_waits() -> None:
    waiting = Waiting()
    waiting.add(chunks("a", 1) + chunks("b", 3))
    assert waiting.take("c", ["a", "b"])[0].entry == "b"


def test_no_key_is_lost() -> None:
    waiting = Waiting()
    waiting.add([*chunks("a", 5), [], *chunks("b", 7)])
    taken = [waiting.take(None, ["a", "b"]) for _ in range(12)]
    assert sorted((some[0].entry, some[0].seed) for some in taken) == [("a", at) for at in range(5)] + [("b", at) for at in range(7)]
    assert waiting.take(None, []) == []
