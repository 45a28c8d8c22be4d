"""Keys that wait for a worker, by the entry that a worker has to look through for them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from .study import Task

__all__ = ["Waiting"]


class Waiting:
    """Chunks of keys. Those of one entry go to one worker as long as there are entries that nobody is at."""

    def __init__(self) -> None:
        self._chunks: dict[str, deque[list[Task]]] = {}

    def add(self, chunks: Iterable[list[Task]]) -> None:
        """Adds chunks, each of one entry."""
        for chunk in chunks:
            if chunk:
                self._chunks.setdefault(chunk[0].entry, deque()).append(chunk)

    def entries(self) -> int:
        """Entries of which keys wait."""
        return len(self._chunks)

    def take(self, last: str | None, under_way: Iterable[str]) -> list[Task]:
        """The next chunk for a worker: of the entry that it did last; of one that nobody is at; or of that of which most wait.
        Nothing if there is none."""
        if not self._chunks:
            return []
        taken = set(under_way)
        unheeded = (entry for entry in self._chunks if entry not in taken)
        entry = last if last in self._chunks else next(unheeded, None)
        if entry is None:
            entry = max(self._chunks, key=lambda entry: len(self._chunks[entry]))
        chunks = self._chunks[entry]
        chunk = chunks.popleft()
        if not chunks:
            del self._chunks[entry]
        return chunk
