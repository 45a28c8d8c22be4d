"""Types as a user has them: a script without one that says nothing passes mypy --strict, and runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from fleet_help import MIXED

pytest.importorskip("mypy")

SCRIPT = Path(__file__).parent / "typed_script.py"


def check(script: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    # From elsewhere: it is to look at what is installed.
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", "", "--disable-error-code", "import-untyped", str(script)]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)


def test_a_script_without_any_is_strictly_typed_and_runs(tmp_path: Path) -> None:
    text = SCRIPT.read_text()
    assert "Any" not in text and 55 <= len(text.splitlines()) <= 80
    checked = check(SCRIPT, tmp_path)
    assert checked.returncode == 0, checked.stdout
    ran = subprocess.run([sys.executable, str(SCRIPT), str(MIXED), str(tmp_path / "store")], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "'fidelity': '94.5 %'" in ran.stdout and "holds: too few" in ran.stdout and "6.12: x" in ran.stdout


def test_what_is_wrong_is_found(tmp_path: Path) -> None:
    """The canary: types that say nothing would find nothing."""
    wrong = tmp_path / "wrong.py"
    wrong.write_text(
        SCRIPT.read_text()
        .replace("answer.ratio:.2f", "answer.ratoi:.2f")
        .replace("frame: pandas.DataFrame = comparison", "frame: int = comparison")
        .replace("told(store, None)", "told(store, 3)")
    )
    told = check(wrong, tmp_path).stdout
    assert 'has no attribute "ratoi"' in told and "DataFrame" in told and 'Argument 2 to "told" has incompatible type "int"' in told, told
