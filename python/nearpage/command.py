"""Where the command ``nearpage-fleet`` begins: it says what it lacks. All else is in ``nearpage.fleet.cli``."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> int:
    """Runs the command; its exit status."""
    try:
        from .fleet import cli
    except ImportError as error:
        print(f"nearpage-fleet: {error}", file=sys.stderr)
        return 1
    return cli.main()
