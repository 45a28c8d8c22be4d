"""Tuning against made-up loads: what is planted is found, noise wins nothing, limits are kept, and a kill loses nothing."""

from __future__ import annotations

import hashlib
import json
import math
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numpy")
pytest.importorskip("optuna")

import nearpage  # noqa: E402
from nearpage.fleet.measured import Bundles, Known  # noqa: E402
from nearpage.fleet.objective import Limit, Objective  # noqa: E402
from nearpage.fleet.pairs import Row  # noqa: E402
from nearpage.fleet.space import OneOf, Settings, Space, Whole  # noqa: E402
from nearpage.fleet.tune import Tuned, parted, tune  # noqa: E402

Effect = Callable[[Settings, int], Mapping[str, float]]


def chance(*of: object) -> float:
    """Between 0 and 1, the same for the same."""
    return int.from_bytes(hashlib.sha256(repr(of).encode()).digest()[:8], "big") / 2**64


class Made:
    """Loads whose figures are a function of settings. What each recording says of itself, beside."""

    def __init__(self, effect: Effect, loads: int = 16, says: Callable[[int], Mapping[str, object]] = lambda load: {}) -> None:
        self.effect, self.loads, self.says, self.calls = effect, loads, says, 0

    def entries(self) -> Mapping[str, str]:
        return {f"entry {at:02}": f"load {at:02}" for at in range(self.loads)}

    def name(self) -> str:
        return "made"

    def rows(self, settings: Settings, entries: Sequence[str]) -> dict[str, Row]:
        self.calls += 1
        return {entry: self.row(settings, entry, int(entry[-2:])) for entry in entries}

    def row(self, settings: Settings, entry: str, load: int) -> Row:
        own = {"entry": entry, "load": f"load {load:02}", "machine": "made", "kernel": "6.18"}
        return {**own, **self.effect(settings, load), **self.says(load)}


def planted(settings: Settings, load: int) -> Mapping[str, float]:
    """A scale of 0 halves the holds of each load, more or less; the batch is noise."""
    factor = 0.5 if settings.get("pcp.batch_scale_max") == 0 else 1.0
    noise = math.exp(0.1 * (chance(load, sorted(settings.items())) - 0.5))
    return {"holds": 1e4 * (1 + load) * factor * noise, "kept_pages_mean": 1e4, "longest_hold_operations": 1000}


def noise(settings: Settings, load: int) -> Mapping[str, float]:
    return {"holds": 1e4 * math.exp(1.0 * (chance(load, sorted(settings.items())) - 0.5)), "kept_pages_mean": 1e4, "longest_hold_operations": 1000}


def trade(settings: Settings, load: int) -> Mapping[str, float]:
    """Larger pagesets: fewer holds, more memory, longer holds."""
    high = float(settings.get("pcp.high_min", 1000))
    wobble = math.exp(0.02 * (chance(load, sorted(settings.items())) - 0.5))
    return {"holds": 1e7 / high * wobble, "kept_pages_mean": 10 * high, "longest_hold_operations": high}


SPACE = Space.parse(["pcp.batch_scale_max=0..6", "pcp.batch=8..512"])
HIGH = Space.parse(["pcp.high_min=200..8000"])


def search(effect: Effect, folder: Path, *, space: Space = SPACE, limits: Sequence[str] = (), trials: int = 30, loads: int = 16) -> Tuned:
    return tune(Made(effect, loads), Objective.of("holds", limits), folder=folder, space=space, trials=trials, folds=3)


def test_what_is_planted_is_found_and_holds_elsewhere(tmp_path: Path) -> None:
    tuned = search(planted, tmp_path)
    assert tuned.winner is not None and tuned.winner["pcp.batch_scale_max"] == 0, str(tuned)
    assert tuned.answer.high is not None and tuned.answer.high < 0.8 and 0.4 < tuned.answer.ratio < 0.6
    assert "better on loads that the search had not seen" in tuned.reason
    # Whatever the batch is, it cannot be told from the best.
    assert all(of["pcp.batch_scale_max"] == 0 for of in tuned.as_good)
    assert {load for fold in tuned.folds for load in fold.held_out} == set(tuned.loads)


def test_noise_names_no_winner_although_a_best_is_found(tmp_path: Path) -> None:
    tuned = search(noise, tmp_path)
    # What a search that believes itself would have told.
    assert tuned.best and tuned.searched < 0.95, str(tuned)
    assert tuned.winner is None and tuned.answer.ratio > tuned.searched
    assert "no difference" in tuned.reason
    json.dumps(tuned.to_dict())


def test_limits_bind(tmp_path: Path) -> None:
    kept = search(trade, tmp_path, space=HIGH, limits=["kept_pages_mean<=today*2"])
    assert kept.best is not None and 1000 < float(kept.best["pcp.high_min"]) <= 2000
    assert [limit.verdict for limit in kept.limits] == ["holds"] and kept.winner == kept.best
    # Beyond the limit today: what holds it is named, although it has more holds.
    short = search(trade, tmp_path, space=HIGH, limits=["longest_hold_operations<=500"])
    assert not short.is_today_within and short.winner is not None and float(short.winner["pcp.high_min"]) <= 500
    assert short.searched > 1 and "today's settings are beyond a limit" in short.reason
    none = search(trade, tmp_path, space=HIGH, limits=["longest_hold_operations<=5"], trials=5)
    assert none.best is None and none.winner is None and "holds the limits on all loads" in none.reason


def test_few_loads_name_no_winner(tmp_path: Path) -> None:
    tuned = search(planted, tmp_path, loads=4)
    assert tuned.winner is None and tuned.answer.low is None and "too few loads" in tuned.reason


def made(says: Callable[[int], Mapping[str, object]], folder: Path, *, effect: Effect = planted, figure: str = "holds", **asked: Any) -> Tuned:
    return tune(Made(effect, 16, says), Objective.of(figure), folder=folder, space=SPACE, trials=12, folds=3, **asked)


def test_hosts_are_held_out_whole_and_twins_with_their_recording(tmp_path: Path) -> None:
    hosts = made(lambda load: {"host": f"host {load % 8}"}, tmp_path)
    assert hosts.unit == "host" and hosts.answer.loads == 8 and {unit.pairs for unit in hosts.answer.units} == {2}
    assert sorted(name for fold in hosts.folds for name in fold.held_out) == list(hosts.loads) == [f"host {at}" for at in range(8)]
    # Sixteen recordings, of which twelve are twins: four loads.
    twins = made(lambda load: {"name": f"name {load}", "twin_of": f"name {load % 4}" if load > 3 else None}, tmp_path)
    assert twins.answer.loads == 4 and twins.winner is None and "too few loads" in twins.reason
    with pytest.raises(nearpage.ArgumentError, match="1 host in 3 folds, expected a host or more for each"):
        made(lambda load: {"host": "one"}, tmp_path)


def test_the_model_s_error_and_the_gate_count_as_in_answers(tmp_path: Path) -> None:
    rough = made(lambda load: {"error_percent_holds": 200.0}, tmp_path)
    assert rough.best and rough.winner is None and rough.answer.verdict == "within the model's error" and "within the model's error" in rough.reason
    gated = made(lambda load: {"fidelity": 50.0 if load == 3 else 95.0}, tmp_path)
    assert len(gated.loads) == 15 and "load 03" not in gated.loads and gated.left_out == (("load 03", 50.0),)
    assert "Left out, since the model predicts them to less than 80 %: load 03 (50.0 %)." in str(gated)
    assert len(made(lambda load: {"fidelity": 50.0}, tmp_path, gate=50).loads) == 16
    with pytest.raises(nearpage.ArgumentError, match="0 loads in 3 folds .Left out, since the model predicts them to less than 80 %: load 00"):
        made(lambda load: {"fidelity": 50.0}, tmp_path)


def test_of_a_figure_of_which_more_is_better_the_ratio_is_shown_as_it_is(tmp_path: Path) -> None:
    more = made(lambda load: {}, tmp_path, effect=lambda settings, load: {"whole_mean": 2e7 / planted(settings, load)["holds"]}, figure="whole_mean")
    assert more.winner is not None and more.searched > 1.4 and more.answer.ratio > 1.4 and more.answer.verdict == "better", str(more)


def test_the_same_question_goes_on_and_another_begins(tmp_path: Path) -> None:
    begun = search(planted, tmp_path, trials=6)
    told: list[tuple[int, int]] = []
    again = tune(Made(planted), Objective.of("holds"), folder=tmp_path, space=SPACE, trials=6, folds=3, progress=lambda done, whole: told.append((done, whole)))
    assert again == begun and told[0] == (6, 24) and told[-1] == (24, 24)
    # More trials go on; what they come to is what they would have come to at once.
    assert search(planted, tmp_path, trials=12) == search(planted, tmp_path / "other", trials=12)


PROGRAM = """
import sys, time
sys.path.insert(0, {tests!r})
from pathlib import Path
import test_tune as t
class Slow(t.Made):
    def rows(self, settings, entries):
        time.sleep(0.01)
        return super().rows(settings, entries)
tuned = t.tune(Slow(t.planted), t.Objective.of("holds"), folder=Path({folder!r}), space=t.SPACE, trials=12, folds=3)
print(tuned)
"""


def test_a_killed_search_goes_on_where_it_was(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    chances = random.Random(seed)
    undisturbed = search(planted, tmp_path / "undisturbed", trials=12)
    program = PROGRAM.format(tests=str(Path(__file__).parent), folder=str(tmp_path / "killed"))
    kills = 0
    for _ in range(30):
        # Elsewhere: the folder `nearpage` beside the tests is not the package that is installed.
        process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=tmp_path)
        trials = tmp_path / "killed" / "trials.db"
        while process.poll() is None and not trials.exists():
            time.sleep(0.01)
        try:
            printed, _ = process.communicate(timeout=0.2 + chances.random() * 1.2 if kills < 5 else 300)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.communicate()
            kills += 1
            continue
        assert process.returncode == 0, f"seed {seed}"
        break
    assert kills >= 2, "it was killed in its midst"
    assert printed == f"{undisturbed}\n", f"seed {seed}"


def test_what_was_measured_survives_a_line_that_was_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "measured.jsonl"
    known = Known(path)
    known.put({"entry": "a"}, {"holds": 1})
    known.put({"entry": "b"}, {"holds": 2})
    whole = path.read_bytes()
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        again = Known(path)
        assert again.get({"entry": "b"}) is None or cut == len(whole) - 1
        again.put({"entry": "b"}, {"holds": 3})
        assert Known(path).get({"entry": "b"}) == {"holds": 3}
    path.write_bytes(b'[1]\n{"key": 5}\n\xff\xfe\n' + whole)
    assert Known(path).get({"entry": "a"}) == {"holds": 1}


def test_bundles_are_measured_once(tmp_path: Path) -> None:
    shipped = Path(__file__).parents[2] / "bundles" / "q612-n2-mixed.tar.zst"
    bundles = Bundles.of([shipped], "linux-6.18", tmp_path)
    rows = bundles.rows({"pcp.batch_scale_max": 0}, ["q612-n2-mixed"])
    row = rows["q612-n2-mixed"]
    [linux, _] = nearpage.compare_rules([shipped], ["nearpage"]).rows.to_dicts()
    own = bundles.rows({}, ["q612-n2-mixed"])["q612-n2-mixed"]
    assert own["holds"] == linux["holds"] < row["holds"]
    causes = [own[f"holds_{cause}"] for cause in ("refill", "drain", "direct", "foreign", "upkeep")]
    assert sum(causes) == own["holds"]
    size = (tmp_path / "measured.jsonl").stat().st_size
    again = Bundles.of([shipped], "linux-6.18", tmp_path)
    assert again.rows({}, ["q612-n2-mixed"])["q612-n2-mixed"] == own
    assert (tmp_path / "measured.jsonl").stat().st_size == size
    with pytest.raises(nearpage.ArgumentError, match="two bundles"):
        Bundles.of([shipped, shipped], "linux-6.18", tmp_path)


def test_a_bundle_that_was_replaced_is_measured_again(tmp_path: Path) -> None:
    folder = Path(__file__).parents[2] / "bundles"
    path = tmp_path / "load.tar.zst"
    names, holds = set(), set()
    for name in ("q612-n2-mixed", "q612-n4-asym"):
        path.write_bytes((folder / f"{name}.tar.zst").read_bytes())
        bundles = Bundles.of([path], "linux-6.18", tmp_path / "tuning")
        names.add(bundles.name())
        holds.add(bundles.rows({}, ["load"])["load"]["holds"])
    # A search of the one does not go on with trials of the other.
    assert len(names) == len(holds) == 2
    path.unlink()
    with pytest.raises(nearpage.ArgumentError, match="expected a bundle"):
        Bundles.of([path], "linux-6.18", tmp_path / "tuning").rows({}, ["load"])


def test_parts_are_all_loads_once() -> None:
    loads = [f"load {at}" for at in range(13)]
    parts = parted(loads, 4, 7)
    assert sorted(load for part in parts for load in part) == sorted(loads) and {len(part) for part in parts} == {3, 4}
    assert parts == parted(loads[::-1], 4, 7) != parted(loads, 4, 8)


def test_limits_and_spaces_are_read() -> None:
    assert Limit.parse("kept_pages_mean≤today's") == Limit("kept_pages_mean", True, 1.0, True)
    assert str(Limit.parse("whole_mean >= today*0.9")) == "whole pageblocks, mean at least today's x 0.9"
    assert Space.parse(["pcp.batch=31,63", "vm.x=a"]).of == {"pcp.batch": OneOf((31, 63)), "vm.x": OneOf(("a",))}
    assert Space.parse(["pcp.batch=1..9"]).of == {"pcp.batch": Whole(1, 9)}
    wrong: list[Callable[[], Any]] = [
        lambda: Limit.parse("kept_pages_mean<5"), lambda: Limit.parse("speed<=5"), lambda: Limit.parse("holds<="),
        lambda: Space.parse(["pcp.batch"]), lambda: Space.parse(["pcp.batch=9..1"]), lambda: Space.parse(["a=1", "a=2"]), lambda: Space.parse(["a=1,,2"]),
        lambda: Objective.of("speed"),
    ]  # fmt: skip
    for read in wrong:
        with pytest.raises(nearpage.ArgumentError, match="expected"):
            read()


def test_examples_of_docstrings_run() -> None:
    import doctest

    from nearpage.fleet import objective, space

    for module in (objective, space):
        tested = doctest.testmod(module)
        assert tested.attempted and not tested.failed
