"""What is about real kernels and real memory: verify, bench, record; and twins."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import nearpage

BUNDLES = Path(__file__).parents[2] / "bundles"


def test_recordings_are_verified() -> None:
    names = ["q612-n2-mixed", "q612-n4-asym"]
    told: list[tuple[int, int]] = []
    answer = nearpage.verify([BUNDLES / f"{name}.tar.zst" for name in names], progress=lambda done, all: told.append((done, all)))
    assert answer.is_same and not answer.mismatches.to_dicts()
    captures = answer.captures.to_dicts()
    assert len(captures) >= 4 and all(of["error"] is None and of["matched"] <= of["total"] for of in captures)
    assert sum(of["matched"] for of in captures) > 0
    assert {entry["capture"] for entry in answer.to_dict()} >= {"before", "after"} and told[-1] == (2, 2)
    # Rules of another kernel are not those that printed it.
    wrong = nearpage.verify([BUNDLES / "q612-n2-mixed.tar.zst"], "linux-6.1")
    assert not wrong.is_same and wrong.mismatches.to_dicts()[0]["predicted"]
    missing = nearpage.verify([BUNDLES / "none.tar.zst"])
    assert not missing.is_same and "none.tar.zst" in missing.captures.to_dicts()[0]["error"]
    with pytest.raises(nearpage.ArgumentError, match="linux-"):
        nearpage.verify([], "nearpage")
    with pytest.raises(nearpage.ArgumentError, match="expected a list of paths"):
        nearpage.verify(BUNDLES / "q612-n2-mixed.tar.zst")  # type: ignore[arg-type]
    with pytest.raises(nearpage.ArgumentError, match="command='make -j8', expected a list of words"):
        nearpage.record("make -j8", "x.tar")


def test_real_memory_is_measured() -> None:
    measured = nearpage.bench(["pairs"], quick=True, bytes=48 << 20, rounds=2)
    rows = [row for row in measured.rows.to_dicts() if row["allocator"] == "nearpage"]
    assert rows and all(0 < row["ns_min"] <= row["ns_median"] <= row["ns_max"] for row in rows)
    assert measured.to_dict()["machine"]["cpus"] >= 1
    for arguments in ({"benches": ["speed"]}, {"bytes": 1}, {"models": ["linux-2.4"]}):
        with pytest.raises(nearpage.NearpageError):
            nearpage.bench(**arguments)


def test_a_recording_is_made_or_refused(tmp_path: Path) -> None:
    output = tmp_path / "true.tar.zst"
    try:
        recorded = nearpage.record(["true"], output)
    except nearpage.MachineError as error:
        # Not root, or a kernel that does not let itself be traced: then there is no half of a bundle.
        assert str(error) and not output.exists()
        if os.geteuid() == 0:
            pytest.skip(f"this machine records nothing: {error}")
        return
    assert recorded["exit_code"] == 0 and recorded["events"]
    assert nearpage.Bundle.open(output).kernel == recorded["kernel"]
    with pytest.raises(nearpage.ArgumentError):
        nearpage.record([], tmp_path / "nothing.tar.zst")


def test_a_twin_is_like_its_recording(tmp_path: Path) -> None:
    bundle = nearpage.Bundle.shipped()
    twin = bundle.twin(tmp_path / "twin", cpus=8, nodes=4, hours=15 / 3600, seed=7)
    assert twin.kernel == bundle.kernel
    apart = bundle.profile().distance(twin.profile())
    assert apart["rates"] < 0.3 and apart["orders"] < 0.05 and apart["lifetimes"] < 0.15, apart
    figures = {row["figure"]: row["value"] for row in twin.profile().figures.to_dicts()}
    assert figures["cpus"] == 8 and 14 < figures["seconds"] < 15.1
    # What a kernel would have done is what rules do.
    [linux, own] = nearpage.compare_rules([tmp_path / "twin"], ["nearpage"]).rows.to_dicts()
    assert linux["cpus"] == 8 and linux["holds"] > own["holds"] > 0
    with pytest.raises(nearpage.ReplayError, match="a multiple of its 2"):
        bundle.twin(tmp_path / "other", nodes=3)
    with pytest.raises(nearpage.ReplayError, match="it is there already"):
        bundle.twin(tmp_path / "twin")


def test_counters_are_those_of_the_kernel() -> None:
    rows = {row["counter"]: row for row in nearpage.Bundle.shipped().counters().to_dicts()}
    assert rows["pgfree"]["after"] > rows["pgfree"]["before"] > 0
