"""Instructions of a replay from Python beside the command's, by callgrind: ``python tests/measure_replay.py NEARPAGE [BUNDLE] [REPEATS]``.

NEARPAGE is the program, built with ``--release`` as the package is. Both replay the bundle once and REPEATS more times; the difference
divided by the repeats is a replay by itself, without starting an interpreter. Counts do not depend on what else the machine does.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

SHIPPED = Path(__file__).parents[2] / "bundles" / "q612-n2-mixed.tar.zst"
#: Seeds of more starts make a replay as long as a trace of 10⁶ events: each is a run over the trace.
PROGRAM = "import nearpage\nnearpage.Bundle.open({bundle!r}).replay(starts={starts})\n"


def instructions(command: list[str]) -> int:
    """Of a process and all its threads."""
    with tempfile.TemporaryDirectory() as folder:
        valgrind = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out", *command]
        done = subprocess.run(valgrind, capture_output=True, text=True, check=False)
        found = re.search(r"Collected : (\d+)", done.stderr)
        if done.returncode or found is None:
            sys.exit(f"{' '.join(command)} failed:\n{done.stderr}")
        return int(found[1])


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    program = sys.argv[1]
    bundle = sys.argv[2] if len(sys.argv) > 2 else str(SHIPPED)
    more = int(sys.argv[3]) if len(sys.argv) > 3 else 8
    sides = {
        "command": lambda starts: [program, "replay", bundle, "--json", "--starts", str(starts)],
        "Python": lambda starts: [sys.executable, "-c", PROGRAM.format(bundle=bundle, starts=starts)],
    }
    counts = {name: [instructions(of(starts)) for starts in (0, more)] for name, of in sides.items()}
    for name, (few, many) in counts.items():
        print(f"{name:8} {few:,} instructions; {many:,} with {more} more starts: {many - few:,} for these")
    (few, many), (of_few, of_many) = counts["Python"], counts["command"]
    print(f"whole processes: {few / of_few:.3f} and {many / of_many:.3f}; the work alone: {(many - few) / (of_many - of_few):.3f}")


if __name__ == "__main__":
    main()
