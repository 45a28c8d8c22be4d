"""The command ``nearpage-fleet`` where pyarrow is not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("argument", ["--version", "--help", "ls"])
def test_the_command_says_what_it_lacks(argument: str, tmp_path: Path) -> None:
    program = "import sys; sys.modules['pyarrow'] = None; from nearpage.command import main; sys.exit(main())"
    ended = subprocess.run([sys.executable, "-c", program, argument], cwd=tmp_path, capture_output=True, text=True)
    said = "nearpage-fleet: nearpage.fleet needs pyarrow (pip install 'nearpage[fleet]')\n"
    assert (ended.returncode, ended.stdout, ended.stderr) == (1, "", said)
