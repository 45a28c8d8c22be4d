"""Pages of studies: one file without scripts, that says what the answers say."""

from __future__ import annotations

import argparse
import html
import json
import re
import shlex
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numpy")
pytest.importorskip("pyarrow")

import nearpage  # noqa: E402
import nearpage.fleet as fleet  # noqa: E402
from nearpage.fleet import page, report  # noqa: E402
from nearpage.fleet.figures import MAIN  # noqa: E402
from test_answers import Row, noise, planted, results, setting  # noqa: E402


class Reader(HTMLParser):
    """What a browser would show, and what it would fetch."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.tags: list[str] = []
        self.open: list[str] = []
        self.fetched: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.fetched += [f"{tag} {name}" for name, _ in attrs if name in ("src", "href", "xlink:href") or name.startswith("on")]
        if tag not in ("meta", "line", "circle", "rect", "polyline"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("line", "circle", "rect", "polyline"):
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.texts)


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return results(20, {setting(1): noise, setting(99): planted, setting(50): lambda at, draws: 6.0 if at == 3 else noise(at, draws)})


def test_a_page_says_what_the_answers_say(rows: list[Row]) -> None:
    html = report.render(rows, figures=["holds", "whole_mean"], by=["machine"], title="Batches", command="nearpage-fleet report", store="some where")
    shown = Reader(html)
    assert shown.open == [] and shown.fetched == [] and shown.tags.count("script") == 1 and "svg" in shown.tags
    assert "content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-" in html
    assert "prefers-color-scheme: dark" in html and "http:" not in html and "https:" not in html
    assert "against nearpage on 20 recordings of 20 loads from 2 machines" in " ".join(shown.text.split())
    assert "pcp.batch=99" in shown.text and "no difference can be told" in shown.text and "By machine" in shown.text
    # The worst load comes first, with a command that a shell reads.
    regressions = html[html.index("Worst regressions") :]
    assert regressions.index("load 3<") < regressions.index("</tr><tr>", regressions.index("<tbody>"))
    command = next(text for text in shown.texts if text.startswith("printf"))
    assert command.endswith("nearpage-fleet run one.toml --store 'some where' --output one.csv; cat one.csv")
    toml = subprocess.run(["sh", "-c", command.split(" > ")[0]], capture_output=True, text=True, check=True).stdout
    tomllib = pytest.importorskip("tomllib")
    study = tomllib.loads(toml)
    assert study["models"] == ["nearpage"] and study["settings"] == [{"pcp.batch": 50}] and study["entries"] == ["3-0"]
    assert nearpage.fleet.Study(**study).combinations == 1


def test_the_same_results_make_the_same_page(rows: list[Row]) -> None:
    assert report.render(rows, figures=["holds"]) == report.render(rows[::-1], figures=["holds"])


def test_what_comes_from_recordings_is_escaped(rows: list[Row]) -> None:
    evil = "<script>alert('ü')</script>&\"x"
    html = report.render([row | {"load": evil + str(row["load"]), "machine": evil} for row in rows], figures=["holds"], title=evil)
    assert html.count("<script>") == 1 and evil not in html and "&lt;script&gt;" in html
    assert Reader(html).open == []


def test_nothing_to_compare_is_told() -> None:
    alone = [row for row in results(3, {}) if row["settings"] == "{}"]
    assert "There is nothing to compare" in report.render(alone, figures=["holds"])
    with pytest.raises(nearpage.ArgumentError, match="results with rows"):
        report.render([])


def run(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser()
    report.add_arguments(parser)
    return report.command(parser.parse_args(arguments))


def test_the_command_writes_a_page(rows: list[Row], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import pyarrow.parquet

    table: Any = pyarrow.Table.from_pylist(rows)
    pyarrow.parquet.write_table(table, tmp_path / "results.parquet")
    (tmp_path / "results.json").write_text(json.dumps(rows))
    out = tmp_path / "größe.html"
    assert run(["--results", str(tmp_path / "results.parquet"), "--figures", "holds", "-o", str(out)]) == 0
    assert run(["--results", str(tmp_path / "results.json"), "--figures", "holds", "-o", "-"]) == 0
    printed = capsys.readouterr().out
    assert "nearpage-fleet report --results" in printed and out.read_text().count("<tr>") == printed.count("<tr>")
    for arguments, said in [
        (["--store", str(tmp_path / "none")], "none"), (["--results", str(tmp_path / "none.parquet")], "none.parquet"),
        (["--results", str(out)], "expected results"), (["--results", str(tmp_path / "results.json"), "--figures", "speed"], "no figure"),
        (["--results", str(tmp_path / "results.json"), "--figures", "holds", "-o", str(tmp_path / "no" / "page")], "file that can be written"),
    ]:  # fmt: skip
        with pytest.raises(nearpage.NearpageError, match=said):
            run(arguments)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["größe.html", "results.json", "results.parquet"]


def test_a_page_says_how_to_repeat_it_from_anywhere(own_store: fleet.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet.run(fleet.Study(models=["linux-6.18", "linux-6.1"], settings=[{}, {"pcp.batch_scale_max": 0}, {"pcp.batch": 1}]), store=own_store)
    monkeypatch.chdir(Path(own_store.url).parent)
    assert run(["--store", Path(own_store.url).name, "--baseline", "linux-6.18", "--gate", "0", "-o", str(tmp_path / "page.html")]) == 0
    commands = re.findall(r"<code>(printf .*?)</code>", (tmp_path / "page.html").read_text())
    assert commands and all(own_store.url in html.unescape(command) for command in commands)
    # The command shows the figures, although they are in the store.
    monkeypatch.chdir(tmp_path)
    command = html.unescape(commands[0]).replace("nearpage-fleet ", f"{shlex.quote(sys.executable)} -m nearpage.fleet.cli ")
    shown = subprocess.run(command, shell=True, capture_output=True, text=True, check=True).stdout
    assert "holds" in shown and "pcp.batch" in shown
    # Of several rule sets one is to be chosen: those without settings are offered.
    with pytest.raises(nearpage.ArgumentError, match="2 variants could be the baseline, expected one of linux-6.1; linux-6.18"):
        run(["--store", own_store.url, "-o", str(tmp_path / "none.html")])


def test_a_page_of_many_loads_is_short_and_says_the_answer_first() -> None:
    import random

    draws, rows = random.Random(4), []
    for load in range(2000):
        base = draws.lognormvariate(8, 1)
        for at in range(11):
            rows.append(
                {
                    "entry": f"e{load}", "load": f"load {load}", "machine": f"machine {load % 300}", "kernel": "6.12", "model": "linux-6.12", "what_if": "",
                    "settings": setting(at) if at else "{}", "seed": 0, "fidelity": 90.0 + load % 10, "error_percent_holds": 1.0, "error_percent_operations": 1.0,
                    **{name: base * (draws.lognormvariate(0.1 * (at == 3), 0.2) if at else 1.0) for name in MAIN},
                }
            )  # fmt: skip
    html = report.render(rows, primary="longest_hold_operations")
    assert len(html) < 3_000_000
    text = " ".join(Reader(html).text.split())
    first = text.index("longest hold x1.1")
    assert first < text.index("against linux-6.12") < text.index("Machines and settings") and "It is worse" in text
    assert "up to 0 % of others may behave otherwise" in text.lower() and "250 more machines are not shown" in text and "Words" in text


def test_plots_have_room_for_what_cannot_be_told() -> None:
    lines = [page.Range("a <b>", 1.0, 0.0, float("inf"), "same", (1.0, 1e9)), page.Range("b", 0.5, None, None, "better")]
    drawn = page.ranges(lines)
    assert "nan" not in drawn and "inf" not in drawn and "a &lt;b&gt;" in drawn
    assert "nan" not in page.spots([page.Spot("x", 1.0, 1.0, True), page.Spot("y", 0.2, float("inf"), False)], "holds", "kept")
    assert page.ranges([]) and page.spots([], "a", "b")
