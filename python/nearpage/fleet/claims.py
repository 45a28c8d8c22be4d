"""Claims: who computes a key, so that two runs at once do not compute it both.

A claim is an object that is made with the condition that there is none. It names its process and beats while that works. Nothing
is decided by a clock on a wall: a claim is dead if its process is one of this machine that is no more, or if who asks has seen it
unchanged for the length of a lease, by a clock of their own that only goes forward. A dead claim is not changed: who takes over
makes the claim of the next generation, again with the condition that there is none. So of several that take over one wins.

```text
claims/KK/KEY.0   made by a worker that was killed
claims/KK/KEY.1   made by the one that took over; both are deleted when the result is there
```
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import secrets
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Union

from ..errors import StoreError
from .files import Files, process_is_gone, this_process
from .study import canonical

__all__ = ["Busy", "Claim", "Heart", "take"]

#: Workers that one key may lose.
_GENERATIONS = 64


@dataclass(frozen=True)
class Claim:
    """A key is this process's to compute."""

    files: Files
    key: str
    generation: int
    content: dict[str, Any]

    def beat(self, count: int) -> None:
        """Shows that this process is still at it, if the claim is still there."""
        name = _name(self.key, self.generation)
        # Libraries of object stores raise errors of their own kinds. The next beat tries again.
        with contextlib.suppress(Exception):
            if json.loads(self.files.read(name)).get("token") == self.content["token"]:
                self.files.replace(name, canonical({**self.content, "beat": count}).encode())

    def release(self) -> None:
        """Gives it up, together with those that it took over."""
        for generation in range(self.generation, -1, -1):
            self.files.delete(_name(self.key, generation))


@dataclass(frozen=True)
class Busy:
    """Another one computes the key. ``state`` changes as long as it does."""

    state: str


def _name(key: str, generation: int) -> str:
    return f"claims/{key[:2]}/{key}.{generation}"


def take(files: Files, key: str, unchanged: str | None = None) -> Union[Claim, Busy]:
    """Claims a key. ``unchanged`` is the state that the caller has seen for the length of a lease: whose that is, is dead.

    Raises :class:`nearpage.StoreError` for a key that too many workers were lost with.
    """
    content = {**this_process(), "token": secrets.token_hex(8), "beat": 0}
    generation = 0
    state = ""
    for _ in range(2 * _GENERATIONS):
        name = _name(key, generation)
        if files.create(name, canonical(content).encode()):
            return Claim(files, key, generation, content)
        try:
            found = files.read(name)
        except FileNotFoundError:
            # It was given up meanwhile.
            continue
        state = f"{generation}:{hashlib.sha256(found).hexdigest()[:16]}"
        if state != unchanged and not _is_of_nobody(found) and not _is_taken_over(files, key, generation):
            return Busy(state)
        generation += 1
        if generation == _GENERATIONS:
            place, expected = _name(key, 0), f"up to {_GENERATIONS - 1} (delete claims/{key[:2]}/{key}.* to try again)"
            raise StoreError(f"{place}: {_GENERATIONS} workers were lost with this key, expected {expected}", place, expected)
    return Busy(state)


def _is_taken_over(files: Files, key: str, generation: int) -> bool:
    """Whether one that waited for a lease found a claim dead: there is a next one then, which is the one to watch."""
    try:
        files.read(_name(key, generation + 1))
    except FileNotFoundError:
        return False
    return True


def _is_of_nobody(content: bytes) -> bool:
    with contextlib.suppress(ValueError, AttributeError):
        return process_is_gone(json.loads(content))
    return False


class Heart:
    """Beats for the claim that a thread works on. Each thread that works has one; its own thread ends when there is no claim."""

    def __init__(self, period: float) -> None:
        self.period = period
        self._claim: Claim | None = None
        self._count = 0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    @contextlib.contextmanager
    def beating(self, claim: Claim) -> Iterator[None]:
        """Beats for a claim as long as the context lives."""
        with self._changed:
            self._claim, self._count = claim, 0
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="nearpage-fleet-heart", daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._changed:
                self._claim = None

    def _run(self) -> None:
        while True:
            with self._changed:
                before = self._claim
                self._changed.wait(self.period)
                claim = self._claim
                if claim is None or claim is not before:
                    if claim is None and before is None:
                        self._thread = None
                        return
                    continue
                self._count += 1
                count = self._count
                # Within the lock: the claim is not given up while it beats.
                claim.beat(count)
