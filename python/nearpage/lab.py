"""Scenarios on simulated machines, and what published tables say beside them.

>>> import nearpage
>>> "memoryless-slab" in nearpage.lab.names()
True
>>> report = nearpage.lab.run("memoryless-slab")  # doctest: +SKIP
>>> report.verdicts.to_pandas()  # doctest: +SKIP

Counts come from the core itself and are exact; times are model time.
"""

from __future__ import annotations

from ._nearpage import LabReport, run, sweep
from ._nearpage import scenarios as _scenarios

__all__ = ["LabReport", "names", "run", "sweep"]


def names() -> list[str]:
    """The names of the scenarios that come with nearpage."""
    return _scenarios()
