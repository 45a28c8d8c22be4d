"""Instructions of a replay from Python beside the command's, by callgrind: ``python tests/measure_replay.py NEARPAGE [BUNDLE]``.

NEARPAGE is the program, built with ``--release`` as the package is. The bundle is one of 10⁶ events and more; by default a twin of the one
that comes along, eight times as long. What starting takes by itself is told apart. Counts do not depend on what else the machine does.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile

import nearpage

#: Hours of the twin: 90 s.
HOURS = 0.025
START = "import nearpage\n"
PROGRAM = START + "nearpage.Bundle.open({bundle!r}).replay()\n"


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
    with tempfile.TemporaryDirectory() as folder:
        bundle = sys.argv[2] if len(sys.argv) > 2 else f"{folder}/twin"
        if len(sys.argv) == 2:
            nearpage.Bundle.shipped().twin(bundle, hours=HOURS)
        events = sum(map(len, nearpage.Bundle.open(bundle).events()))
        program = sys.argv[1]
        command = instructions([program, "replay", bundle, "--json"])
        python = instructions([sys.executable, "-c", PROGRAM.format(bundle=bundle)])
        start = instructions([sys.executable, "-c", START])
    print(f"{events:,} events: command {command:,} instructions, Python {python:,}, of which starting takes {start:,}")
    print(f"Python / command: {python / command:.3f}; without starting Python {(python - start) / command:.3f}")


if __name__ == "__main__":
    main()
