"""Fixtures of the tests of nearpage.fleet, where pyarrow is there; what SIGINT does."""

from __future__ import annotations

import signal

# Python inherits that a shell's background jobs ignore SIGINT: some tests interrupt themselves.
signal.signal(signal.SIGINT, signal.default_int_handler)

try:
    import pyarrow  # noqa: F401
except ImportError:
    collect_ignore_glob = ["test_fleet_*.py"]
else:
    from fleet_help import own_store, small_bundles, small_store  # noqa: F401
