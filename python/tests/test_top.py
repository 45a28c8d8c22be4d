"""Machines as ``nearpage top`` sees them."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from pathlib import Path

import pytest

import nearpage

ROOT = Path(__file__).parents[2]
BUNDLE = ROOT / "bundles/q612-n2-mixed.tar.zst"


def test_a_recording_has_tables() -> None:
    moment = nearpage.top(BUNDLE)
    # Captures have no file with the release.
    assert moment.kernel is None and nearpage.top(processes=0).kernel == os.uname().release
    assert [row["node"] for row in moment.nodes.to_dicts()] == [0, 1]
    zones = moment.zones.to_dicts()
    large = [row for row in zones if row["zone"] == "DMA32"]
    assert len(large) == 2 and all(row["min"] < row["low"] < row["high"] <= row["managed"] for row in large)
    free = {(row["node"], row["zone"]): 0 for row in zones}
    for row in moment.blocks.to_dicts():
        free[row["node"], row["zone"]] += row["free_blocks"] << row["order"]
    # Two files that were read one after the other.
    assert all(abs(free[row["node"], row["zone"]] - row["free"]) <= 1000 for row in zones)
    assert {row["cpu"] for row in moment.pagesets.to_dicts()} == {0, 1, 2, 3}
    told = moment.to_dict()
    assert told["schema"] == 1 and len(told["sample"]["zones"]) == len(zones)
    assert {row["event"]: row["since_boot"] for row in moment.events.to_dicts()}["pgfree"] > 0
    assert "<table>" in moment._repr_html_() and "2 nodes" in repr(moment)


def test_this_machine_has_processes_and_rates() -> None:
    moment = nearpage.top(seconds=0.2, processes=5)
    assert moment.source == "this machine" and abs(moment.time_ms / 1000 - time.time()) < 60
    rows = moment.processes.to_dicts()
    assert 1 <= len(rows) <= 5 and all(row["rss_kib"] > 0 for row in rows)
    assert [row["rss_kib"] for row in rows] == sorted((row["rss_kib"] for row in rows), reverse=True)
    assert moment.marks.column_names == ["word", "node", "zone", "reason"]
    assert nearpage.top(processes=0).processes.to_dicts() == []


def test_what_is_wrong_is_marked(tmp_path: Path) -> None:
    text = nearpage.Machine.from_short_form("--numa 2G,cpus=0-1 --numa 2G,cpus=2-3").zoneinfo("linux-6.12")
    zones = tmp_path / "proc/zoneinfo"
    zones.parent.mkdir()
    zones.write_text(text)
    assert nearpage.top(tmp_path).marks.to_dicts() == []
    zones.write_text(re.sub(r"pages free +\d+", "pages free     1", text))
    marks = nearpage.top(tmp_path).marks.to_dicts()
    assert marks and {row["word"] for row in marks} == {"refusing"} and all("1 pages free" in row["reason"] for row in marks)
    assert "refusing" in nearpage.top(tmp_path)._repr_html_()


def test_ctrl_c_ends_the_pause() -> None:
    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(0.3, signal.pthread_kill, [main, signal.SIGINT])
    timer.start()
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        nearpage.top(seconds=30)
    assert time.monotonic() - begun < 5
    timer.join()


def test_what_is_no_machine_is_told(tmp_path: Path) -> None:
    with pytest.raises(nearpage.MachineError, match="proc/zoneinfo"):
        nearpage.top(tmp_path)
    with pytest.raises(nearpage.MachineError):
        nearpage.top(tmp_path / "none")
    with pytest.raises(nearpage.MachineError):
        nearpage.top(BUNDLE, capture="never")
    for wrong in (-1.0, float("nan"), 1e9):
        with pytest.raises(nearpage.ArgumentError, match="0 to 86400"):
            nearpage.top(seconds=wrong)
    with pytest.raises(nearpage.ArgumentError, match="its path"):
        nearpage.top(capture="idle")
    bad = tmp_path / "bad.tape"
    bad.write_bytes(b"no tape")
    with pytest.raises(nearpage.MachineError) as caught:
        nearpage.tape(bad)
    assert caught.value.place is not None and "bad.tape" in caught.value.place
