"""What the chapter about fleets shows runs: its commands, its study, its Python."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
from pathlib import Path

import pytest

from nearpage.fleet import cli

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/src/guides/fleet.md"


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def test_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bundles").mkdir()
    for name in ("q612-n2-mixed", "q612-n4-asym"):
        os.symlink(ROOT / "bundles" / f"{name}.tar.zst", tmp_path / "bundles" / f"{name}.tar.zst")
    monkeypatch.chdir(tmp_path)
    [study] = blocks("toml")
    Path("STUDY.toml").write_text(study)
    Path("salt").write_bytes(b"a salt of the tests")
    lines = [line for block in blocks("sh") for line in block.splitlines() if line.startswith("nearpage-fleet ")]
    # What needs a cluster or a bucket is tested elsewhere.
    here = [line for line in lines if "://" not in line]
    assert len(here) >= 5
    if importlib.util.find_spec("duckdb") is None:
        here = [line for line in here if not line.startswith("nearpage-fleet sql ")]
    for line in here:
        assert cli.main(shlex.split(line, comments=True)[1:]) == 0, line
    assert len(Path("results.csv").read_text().splitlines()) == 1 + 2 * 2 * 2


def test_python_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pandas")
    monkeypatch.chdir(ROOT)
    names: dict[str, object] = {"__name__": "page"}
    assert len(blocks("python")) >= 2
    for block in blocks("python"):
        exec(compile(block, str(PAGE), "exec"), names)  # noqa: S102
    assert "q612-n4-asym" in capsys.readouterr().out
