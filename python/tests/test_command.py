"""Where packages are not that extras bring."""

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


@pytest.mark.parametrize(
    ("lacking", "call", "said"),
    [
        ("pyarrow", "table.to_arrow()", "pyarrow is not installed (pip install 'nearpage[pandas]')"),
        ("pyarrow", "bundle.events().to_arrow()", "pyarrow is not installed (pip install 'nearpage[pandas]')"),
        ("pandas", "table.to_pandas()", "pandas is not installed (pip install 'nearpage[pandas]')"),
        ("polars", "bundle.events().to_polars()", "polars is not installed (pip install 'polars')"),
    ],
)
def test_a_table_says_what_it_lacks(lacking: str, call: str, said: str) -> None:
    program = f"""\
import sys; sys.modules[{lacking!r}] = None
import nearpage
table, bundle = nearpage.Machine.from_short_form("--numa 1G").zones(), nearpage.Bundle.shipped()
try:
    {call}
except ImportError as error:
    print(error)
"""
    ended = subprocess.run([sys.executable, "-c", program], cwd="/", capture_output=True, text=True)
    assert ended.stdout == f"{said}\n", ended.stderr
