"""Exceptions of nearpage.

Each says where something is wrong and what would be accepted there::

    try:
        nearpage.Machine.from_short_form("--numa 2X")
    except nearpage.MachineError as error:
        print(error.place, error.expected)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow

    from ._nearpage import Table


class NearpageError(Exception):
    """What every exception of nearpage is.

    ``place`` is the input, the file with its line, or the argument that is wrong, if there is one.
    ``expected`` says what would be accepted there, if that can be said.
    """

    place: str | None
    expected: str | None

    def __init__(self, message: str, place: str | None = None, expected: str | None = None) -> None:
        super().__init__(message, place, expected)
        self.place = place
        self.expected = expected

    def __str__(self) -> str:
        return str(self.args[0])


class ArgumentError(NearpageError, ValueError):
    """An argument has a value that is not accepted."""


class MachineError(NearpageError):
    """An input describes no machine, or a machine that there cannot be."""


class ReplayError(NearpageError):
    """A bundle cannot be read or replayed."""


class MissingError(ReplayError, FileNotFoundError):
    """There is no bundle by this path."""

    def __init__(self, message: str, place: str | None = None, expected: str | None = None) -> None:
        super().__init__(message, place, expected)
        # OSError keeps the second of three as a text of its own.
        self.args = (message, place, expected)
        self.filename = place

    def __reduce__(self) -> tuple[type[MissingError], tuple[str, str | None, str | None]]:
        return MissingError, (str(self), self.place, self.expected)


class LabError(NearpageError):
    """A scenario cannot be run as it is written."""


class LogError(NearpageError):
    """A kernel's log cannot be read."""


class AllocationError(NearpageError, MemoryError):
    """Memory cannot be made, or has no pages left."""


class StoreError(NearpageError):
    """A store, or an entry of it, is not what it must be. ``place`` is its URL, or the name of an object in it."""


class StudyError(NearpageError, ValueError):
    """A study cannot be computed as it is written. ``place`` is the file with its line, or the argument; ``key`` is its name."""

    key: str | None

    def __init__(
        self, message: str, place: str | None = None, expected: str | None = None, key: str | None = None
    ) -> None:
        super().__init__(message, place, expected)
        self.key = key

    def __reduce__(self) -> tuple[type[StudyError], tuple[str, str | None, str | None, str | None]]:
        return StudyError, (str(self), self.place, self.expected, self.key)


class RunError(NearpageError):
    """Some keys of a study could not be computed; all others are in the store.

    ``failures`` has the reason by key. ``results`` is the table of what is finished.
    """

    failures: dict[str, str]
    results: pyarrow.Table | None

    def __init__(self, message: str, place: str | None, failures: dict[str, str], results: pyarrow.Table | None) -> None:
        super().__init__(message, place)
        self.failures = failures
        self.results = results

    def __reduce__(self) -> tuple[type[RunError], tuple[str, str | None, dict[str, str], Any]]:
        return RunError, (str(self), self.place, self.failures, self.results)


class InternalError(NearpageError):
    """A defect of nearpage: a panic, which ended the call and nothing else. ``place`` is its line."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during a sweep. ``finished`` has a row for each combination that was finished before, in any order; which of
    them are the best is not known."""

    finished: Table

    def __init__(self, finished: Table) -> None:
        super().__init__(f"{len(finished)} combinations are finished")
        self.finished = finished
