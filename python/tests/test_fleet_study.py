"""Studies as data, and what is wrong with them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import nearpage
import nearpage.fleet as fleet

TEXT = """\
entries = ["q612-*", "4d120f26db64"]
models = ["linux-6.18", "nearpage"]
machines = ["recorded", "memoryless-8n2m", {cpus = 64, repeat = 4, map_cpus = "comm"}]
seeds = [0, 1]

[[settings]]
[[settings]]
pcp.high_max = 2000

[over]
"pcp.batch" = [31, 63]
pcp.free_high = ["on", false]
"""


def test_a_study_is_read_from_toml(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(TEXT)
    study = fleet.Study.from_toml(path)
    assert study.combinations == 2 * 8 * 3 * 2
    assert study.settings[0] == {"pcp.batch": 31, "pcp.free_high": True}
    assert study.settings[-1] == {"pcp.batch": 63, "pcp.free_high": False, "pcp.high_max": 2000}
    assert study.machines == (
        {},
        {"map_cpus": "socket", "name": "memoryless-8n2m", "repeat": 1},
        {"cpus": 64, "map_cpus": "comm", "repeat": 4},
    )
    tasks = study.tasks(["a" * 64, "b" * 64])
    assert len(tasks) == 2 * study.combinations == len({task.key for task in tasks})
    assert json.loads(tasks[-1].what_if)["cpus"] == 64 and tasks[0].what_if == ""
    assert fleet.Study(**study.to_dict()) == study


def test_equal_studies_have_equal_keys() -> None:
    keys = [
        [task.key for task in fleet.Study(settings=[settings]).tasks(["a" * 64])]
        for settings in (
            {"pcp.batch": 31, "pcp.free_high": True},
            {"pcp.free_high": "on", "pcp.batch": "31"},
            {"pcp": {"batch": 31, "free_high": True}},
        )
    ]
    assert keys[0] == keys[1] == keys[2]
    task = fleet.Study().tasks(["a" * 64])[0]
    assert (task.version, len(task.model_version), len(task.key)) == (nearpage.__version__, 16, 64)
    # Whatever is part of it makes another key.
    for field, value in (("version", "9"), ("model_version", "0"), ("seed", 1), ("model", "x"), ("settings", "x"), ("entry", "x"), ("what_if", "x"), ("measure", "x")):
        assert fleet.Task(**{**vars(task), field: value}).key != task.key


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("modells = []", 1, "there is no key 'modells'; keys: entries, models"),
        ("\n\nmodels = ['linux-9']", 3, "there is no model 'linux-9', expected .*nearpage"),
        ("models = []", 1, "there is none, expected one or more"),
        ("models = [1]", 1, "1 is no name"),
        ("models = ['nearpage', 'nearpage']", 1, "is there twice"),
        ("seeds = [-1]", 1, "-1 is no seed"),
        ("seeds = [true]", 1, "True is no seed"),
        ("measure = 'all'", 1, "cannot be measured, expected rules, nothing"),
        ("\n[[settings]]\n\npcp.batch = -1", 4, 'pcp.batch=-1: "-1" is no value'),
        ("\n[[settings]]\n\"pcp.bach\" = 1", 3, "is no tunable"),
        ("settings = 3", 1, "3 is no list"),
        ("[over]\npcp.batch = 31", 2, "has 31, expected a list"),
        ("machines = ['nowhere']", 1, "there is no machine \"nowhere\", expected one of"),
        ("\nmachines = ['--numa 2X']", 2, "expected a size"),
        ("\nmachines = [{cpus = 0}]", 2, "cpus: 0, expected 1 to"),
        ("\nmachines = [{cpu = 4}]", 2, "there is no key 'cpu', expected name"),
        ("machines = [{cpus = 4, name = 'x'}]", 1, "names 2 machines"),
        ("seeds = [1\n", None, "expected a study in TOML"),
        (f"seeds = {'[' * 5000}{']' * 5000}", None, "expected a study in TOML"),
        (f"seeds = [{'9' * 5000}]", None, "expected a study in TOML"),
        (f"seeds = [0x{'f' * 5000}]", None, "expected a study in TOML"),
        ("machines = [{cpus = 4, name = 1979-05-27}]", 1, "names 2 machines"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(text: str, line: int | None, problem: str) -> None:
    with pytest.raises(nearpage.StudyError, match=problem) as caught:
        fleet.Study.from_text(text, "study.toml")
    place = str(caught.value.place)
    assert place.startswith("study.toml") and str(caught.value).startswith(place)
    if line is not None:
        assert place == f"study.toml:{line}"


def test_what_is_no_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(nearpage.StudyError, match="nothing.toml: .*expected a study"):
        fleet.Study.from_toml(tmp_path / "nothing.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(nearpage.StudyError, match="expected a study"):
        fleet.Study.from_toml(tmp_path / "bytes.toml")
    with pytest.raises(nearpage.StudyError, match="combinations"):
        fleet.Study(seeds=range(1001), settings=[{"pcp.batch": batch} for batch in range(1, 1002)])
