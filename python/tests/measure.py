"""Reading of a trace beside the stream of its events, in CPU time: ``python python/tests/measure.py [BUNDLE]``."""

from __future__ import annotations

import statistics
import sys
import time
from typing import Callable

import nearpage
from nearpage import _nearpage

ROUNDS = 9


def cpu_seconds(work: Callable[[], object]) -> float:
    """CPU time of all threads of this process."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


def main() -> None:
    bundle = nearpage.Bundle.open(sys.argv[1]) if len(sys.argv) > 1 else nearpage.Bundle.shipped()
    pairs = [
        (cpu_seconds(lambda: _nearpage._read_events(bundle)), cpu_seconds(lambda: sum(map(len, bundle.events()))))
        for _ in range(ROUNDS)
    ]
    read, streamed = (statistics.median(side) for side in zip(*pairs))
    ratio = statistics.median(read / streamed for read, streamed in pairs)
    print(f"{bundle.name}: {ROUNDS} pairs, medians: read {read:.4f} s, to Arrow {streamed:.4f} s, speed {ratio:.2f}")


if __name__ == "__main__":
    main()
