"""How people are told of numbers."""

from __future__ import annotations

__all__ = ["many"]


def many(count: int, name: str) -> str:
    """A count with its noun: ``1 load``, ``2 loads``."""
    return f"{count} {name}" if count == 1 else f"{count} {name}s"
