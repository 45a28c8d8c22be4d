"""A study is run: what is missing is computed, wherever the executor does, and kept key by key.

Workers keep nothing in themselves. A worker claims a key, looks whether its result is there, computes it, and puts it into the
store; who waits here only counts. So whatever is lost (a worker, a scheduler, this process) loses the keys under way and
nothing else, and running the study again goes on where it was.
"""

from __future__ import annotations

import concurrent.futures
import itertools
import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from ..errors import ArgumentError, NearpageError, RunError, StoreError
from . import measure, results
from .claims import Busy, Heart, take
from .executors import Executor, InProcess, Submits, as_executor
from .store import Store
from .study import Study, Task
from .waiting import Waiting
from .words import many

__all__ = ["LEASE", "run", "work"]

_log = logging.getLogger(__name__)

#: Seconds that a claim may stand unchanged before it is taken over, where nobody can tell whether its process lives.
LEASE = 60.0
#: Workers that a key may lose in one run before it is given up: it may be the key that kills them.
_LOSSES = 5
#: Losses without anything finished between them, after which a run ends.
_BREAKS = 50
#: Keys that a worker takes at once, at most.
_CHUNK = 64
_PERIOD = 0.2


class _Own(threading.local):
    """What a thread that works keeps between keys. A worker may have many: none sees what another one prepared, and each has a heart."""

    def __init__(self) -> None:
        self.prepared = measure.Prepared()
        self.hearts: dict[float, Heart] = {}


_own = _Own()

#: What became of a key: its state (``done``, ``busy``, ``failed``), and the claim's state or the reason.
Outcome = tuple[str, str, str]


def work(store: Store, tasks: list[Task], lease: float, unchanged: dict[str, str]) -> list[Outcome]:
    """What a worker does: computes tasks one after the other, and puts each result into the store."""
    heart = _own.hearts.setdefault(lease, Heart(lease / 4))
    return [(task.key, *_one(store, task, heart, unchanged.get(task.key))) for task in tasks]


def _one(store: Store, task: Task, heart: Heart, unchanged: str | None) -> tuple[str, str]:
    try:
        claim = take(store.files, task.key, unchanged)
        if isinstance(claim, Busy):
            return "busy", claim.state
        try:
            with heart.beating(claim):
                # Who had the claim before may have finished.
                if store.result(task) is None:
                    _keep(store, task, measure.compute(store, task, _own.prepared))
        finally:
            claim.release()
        return "done", ""
    except (NearpageError, OSError, ValueError, ArithmeticError, MemoryError, RuntimeError) as error:
        return "failed", f"{type(error).__name__}: {error}"


def _keep(store: Store, task: Task, content: bytes) -> None:
    name = results.name_of(task.key)
    if not store.files.create(name, content) and store.result(task) is None:
        # What is there is damaged.
        store.files.replace(name, content)


@dataclass
class _Course:
    """How far a run is."""

    tasks: dict[str, Task]
    all: int
    lease: float
    progress: Callable[[int, int], object] | None
    waiting: Waiting = field(default_factory=Waiting)
    #: Entries of workers that have finished: what one has looked through, it has still.
    prepared: deque[str] = field(default_factory=deque)
    #: Keys under way when a worker was lost, each to run while nothing else does: so the one that kills workers is found out.
    suspects: deque[Task] = field(default_factory=deque)
    failed: dict[str, str] = field(default_factory=dict)
    #: Keys that others compute: the state of their claim, since when it is so, and when they are asked for again.
    busy: dict[str, tuple[str, float, float]] = field(default_factory=dict)
    losses: Counter[str] = field(default_factory=Counter)
    #: How often all was lost since something was finished.
    breaks: int = 0
    under_way: dict[concurrent.futures.Future[Any], list[Task]] = field(default_factory=dict)

    def tell(self) -> None:
        if self.progress:
            self.progress(self.all - len(self.tasks), self.all)

    def hear(self, outcomes: Iterable[Outcome]) -> None:
        now = time.monotonic()
        self.breaks = 0
        for key, state, detail in outcomes:
            if state == "busy":
                before = self.busy.get(key)
                since = before[1] if before and before[0] == detail else now
                self.busy[key] = (detail, since, now + min(self.lease / 8, 5.0))
                continue
            self.busy.pop(key, None)
            if state == "failed":
                self.failed[key] = detail
            self.tasks.pop(key, None)

    def lose(self, tasks: list[Task], error: BaseException) -> None:
        """A worker is no more, or the way to it. Its keys are asked for again."""
        left = [task for task in tasks if task.key in self.tasks]
        if isinstance(error, (ConnectionError, concurrent.futures.CancelledError)):
            self.waiting.add([left])
            return
        for task in left:
            self.losses[task.key] += 1
            if self.losses[task.key] > _LOSSES:
                what = f"{_LOSSES + 1} workers were lost with it, the last by {type(error).__name__}: {error}"
                self.failed[task.key] = what
                self.tasks.pop(task.key)
            else:
                self.suspects.append(task)

    def next(self) -> list[Task]:
        """What is to be submitted now; nothing if that is to wait."""
        now = time.monotonic()
        for key, (state, since, due) in self.busy.items():
            if now >= due and key in self.tasks:
                self.busy[key] = (state, since, float("inf"))
                return [self.tasks[key]]
        last = self.prepared.popleft() if self.prepared else None
        while chunk := self.waiting.take(last, (some[0].entry for some in self.under_way.values())):
            some = [task for task in chunk if task.key in self.tasks]
            if some:
                return some
        if self.suspects and not self.under_way:
            return [self.suspects.popleft()]
        return []

    def unchanged(self, tasks: list[Task]) -> dict[str, str]:
        """The states of claims that stood for a lease."""
        now = time.monotonic()
        seen = ((task.key, self.busy[task.key]) for task in tasks if task.key in self.busy)
        return {key: state for key, (state, since, _) in seen if now - since >= self.lease}


def run(
    study: Study,
    *,
    store: Store,
    executor: Executor | Submits | None = None,
    progress: Callable[[int, int], object] | None = None,
    lease: float = LEASE,
    chunk: int | None = None,
) -> pa.Table:
    """Computes what a study lacks, and answers ``store.results(study)``.

    ``executor`` is one of :mod:`nearpage.fleet` (:class:`Processes`, :class:`Dask`, :class:`Ray`), a Dask client, or anything with
    ``submit`` as ``concurrent.futures`` has it; this process by default. ``progress`` is called with keys that are finished and
    keys that there are. ``chunk`` is how many keys a worker takes at once.

    Raises :class:`nearpage.RunError` when all is done that can be done and some keys failed: ``failures`` has the reasons,
    ``results`` the table. Ctrl-C ends it; what was finished is in the store.
    """
    if not lease > 0:
        raise ArgumentError(f"lease={lease}, expected seconds above 0", "lease", "seconds above 0")
    if chunk is not None and chunk < 1:
        raise ArgumentError(f"chunk={chunk}, expected 1 or more", "chunk", "1 or more")
    tasks = {task.key: task for task in store.tasks(study)}
    finished = store.finished()
    missing = {key: task for key, task in tasks.items() if key not in finished}
    damaged = _damaged(store, [tasks[key] for key in finished & tasks.keys()])
    if damaged:
        _log.warning("%s: %s, which this run computes again", store.url, many(len(damaged), "damaged result"))
    missing |= damaged
    course = _Course(missing, len(tasks), lease, progress)
    course.tell()
    if missing:
        store.files.sweep()
        runner = as_executor(executor)
        with runner:
            course.waiting.add(_chunks(list(missing.values()), runner, chunk))
            _drive(store, course, runner)
    results = store.results(study)
    if course.failed:
        key, reason = next(iter(course.failed.items()))
        what = f"{len(course.failed)} of {len(tasks)} keys failed; {key[:12]}: {reason}"
        raise RunError(what, store.url, dict(course.failed), results)
    return results


def _damaged(store: Store, tasks: list[Task]) -> dict[str, Task]:
    """Tasks whose results cannot be read, as after a crash of their machine: they are computed again."""
    by_name = {results.name_of(task.key): task for task in tasks}
    found = store.files.read_many(by_name)
    wrong = (name for name, content in found if content is None or not results.read_result(content, by_name[name].key))
    return {by_name[name].key: by_name[name] for name in wrong}


def _chunks(tasks: list[Task], runner: Executor, chunk: int | None) -> Iterable[list[Task]]:
    """Keys of one entry, some at once: each time a worker takes another entry, it looks through its trace."""
    if chunk is None:
        chunk = 1 if isinstance(runner, InProcess) else min(_CHUNK, -(-len(tasks) // (8 * runner.workers)))
    for _, of_entry in itertools.groupby(tasks, key=lambda task: task.entry):
        together = list(of_entry)
        for at in range(0, len(together), chunk):
            yield together[at : at + chunk]


def _drive(store: Store, course: _Course, runner: Executor) -> None:
    while course.tasks:
        # Who has finished takes what is submitted next if all others are at work: so it goes on with the entry that it was at.
        most = runner.workers if course.waiting.entries() > 1 else 4 * runner.workers
        try:
            _submit(store, course, runner, most)
        except NearpageError:
            raise
        except Exception as error:
            _recover(course, runner, error)
            continue
        if not course.under_way:
            # All that is left is others' to compute.
            time.sleep(_PERIOD)
            continue
        done, _ = concurrent.futures.wait(course.under_way, _PERIOD, concurrent.futures.FIRST_COMPLETED)
        broken: BaseException | None = None
        for future in done:
            some = course.under_way.pop(future)
            lost = _why_lost(future)
            if lost is None:
                course.prepared.append(some[0].entry)
                course.hear(future.result())
            elif isinstance(lost, (ImportError, AttributeError)):
                expected = "nearpage with its extra fleet on every worker (pip install 'nearpage[fleet]')"
                raise StoreError(f"a worker cannot run tasks: {lost}, expected {expected}", None, expected) from lost
            else:
                course.lose(some, lost)
                broken = lost
        if done:
            course.tell()
        if broken is not None:
            _recover(course, runner, broken)


def _submit(store: Store, course: _Course, runner: Executor, most: int) -> None:
    while len(course.under_way) < most:
        some = course.next()
        if not some:
            return
        try:
            future = runner.submit(work, store, some, course.lease, course.unchanged(some))
        except BaseException:
            course.waiting.add([some])
            raise
        course.under_way[future] = some
        if isinstance(runner, InProcess):
            # It is done: who waits is told first.
            return


def _why_lost(future: concurrent.futures.Future[Any]) -> BaseException | None:
    return concurrent.futures.CancelledError() if future.cancelled() else future.exception()


def _recover(course: _Course, runner: Executor, error: BaseException) -> None:
    """Begins anew. What was under way and is not answered is asked for again: a key that is finished is not computed twice."""
    course.breaks += 1
    try:
        if course.breaks > _BREAKS:
            raise ConnectionError(f"nothing was finished between {_BREAKS} losses")
        runner.recover()
    except Exception as again:
        what = f"the workers were lost: {error or type(error).__name__}; they do not come back: {again}"
        raise RunError(what, None, {key: "was not computed" for key in course.tasks}, None) from again
    for future in [future for future in course.under_way if future.done()]:
        lost = _why_lost(future)
        if lost is not None:
            course.lose(course.under_way.pop(future), lost)
