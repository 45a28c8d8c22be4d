"""Fixtures of the tests of nearpage.fleet, where pyarrow is there; what SIGINT does."""

from __future__ import annotations

import signal

# Whoever runs the tests in the background may ignore it, and so would they.
signal.signal(signal.SIGINT, signal.default_int_handler)

try:
    import pyarrow  # noqa: F401
except ImportError:
    collect_ignore_glob = ["test_fleet_*.py"]
else:
    from fleet_help import own_store, small_bundles, small_store  # noqa: F401
