"""Fixtures of the tests of nearpage.fleet, where pyarrow is there."""

from __future__ import annotations

try:
    import pyarrow  # noqa: F401
except ImportError:
    collect_ignore_glob = ["test_fleet_*.py"]
else:
    from fleet_help import own_store, small_bundles, small_store  # noqa: F401
