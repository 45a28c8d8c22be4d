"""What the book and the README show runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", ["docs/src/guides/python.md", "docs/src/guides/answers.md", "README.md"])
def test_a_page_runs(page: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    monkeypatch.chdir(ROOT)
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    assert blocks, "the page shows Python"
    names: dict[str, object] = {"__name__": "page"}
    for block in blocks:
        exec(compile(block, page, "exec"), names)  # noqa: S102
    printed = capsys.readouterr().out
    # What the comments say is printed.
    for said in re.findall(r"^\s*print\(.*\)\s+# (\{.*\}|short form:\d+|a size .*)$", "\n".join(blocks), re.MULTILINE):
        assert said in printed, said
