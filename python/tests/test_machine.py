"""Machines: where they come from, what they print, and what bad input says."""

from __future__ import annotations

import xml.dom.minidom
from pathlib import Path

import pytest

import nearpage
from nearpage import _nearpage

EXAMPLES = Path(__file__).parents[2] / "docs" / "src" / "examples"
TWO_NODES = "--numa 2G,cpus=0-1 --numa 1G,cpus=2 --numa-distance 0,1=21"


def test_a_machine_is_read_from_each_kind_of_input() -> None:
    text = (EXAMPLES / "two-sockets.numactl").read_text()
    of_text = nearpage.Machine.from_numactl(text)
    assert [node.id for node in of_text.nodes] == [0, 1, 2]
    again = nearpage.Machine.from_numactl(of_text.numactl())
    assert again.distances == of_text.distances
    assert [node.cpus for node in again.nodes] == [node.cpus for node in of_text.nodes]

    short = nearpage.Machine.from_short_form(TWO_NODES)
    assert short.distances == [[10, 21], [21, 10]]
    assert [node.memory_bytes for node in short.nodes] == [2 << 30, 1 << 30]
    assert [node.cpus for node in short.nodes] == [[0, 1], [2]]

    copy = nearpage.Machine.from_sysfs(EXAMPLES / "slow-box")
    assert len(copy.nodes) >= 1
    assert len(nearpage.Machine.open("memoryless-8n2m").nodes) == 8
    live = nearpage.Machine.live()
    assert live.page_bytes >= 4096 and live.nodes[0].memory_bytes


def test_rules_make_zones_and_orders_of_it() -> None:
    machine = nearpage.Machine.from_short_form(TWO_NODES)
    assert machine.fallback() == {0: [0, 1], 1: [1, 0]}
    new, old = (machine.zoneinfo(model=model) for model in ("linux-6.18", "linux-6.1"))
    assert new != old and "high_min" in new and "high_min" not in old
    zones = machine.zones("linux-6.12").to_dicts()
    assert [(zone["node"], zone["zone"]) for zone in zones] == [(0, "DMA"), (0, "DMA32"), (1, "DMA32")]
    for zone in zones:
        assert zone["min"] < zone["low"] < zone["high"]
        assert f"start_pfn:           {zone['start_pfn']}" in new
    assert machine.to_dict("linux-6.12")["model"] == "linux-6.12"
    assert set(nearpage.models()) >= {"nearpage", "linux-6.12", "linux-6.18"}


def test_a_machine_draws_itself() -> None:
    machine = nearpage.Machine.from_short_form(TWO_NODES)
    assert repr(machine) == 'Machine("short form": 2 nodes, 3 CPUs)'
    assert repr(machine.nodes[1]).startswith("Node(id=1, cpus=[2]")
    html = machine._repr_html_()
    drawn = xml.dom.minidom.parseString(html)
    assert len(drawn.getElementsByTagName("svg")) == 2
    assert "node 1" in html and "1 GiB" in html
    table = machine.zones()._repr_html_()
    assert "<th>start_pfn</th>" in table and "<td>DMA32</td>" in table


def test_bad_input_is_told_with_its_place_and_what_is_accepted() -> None:
    with pytest.raises(nearpage.MachineError) as caught:
        nearpage.Machine.from_short_form("--numa 2G,cpus=0\n--numa 2X")
    error = caught.value
    assert isinstance(error, nearpage.NearpageError)
    assert error.place == "short form:2" and "2X" in str(error)
    assert error.expected is not None and "512M" in error.expected

    with pytest.raises(nearpage.MachineError) as caught:
        nearpage.Machine.from_sysfs("/nowhere/at/all")
    assert "/nowhere/at/all" in str(caught.value)

    with pytest.raises(nearpage.MachineError) as caught:
        nearpage.Machine.open("no-such-machine")
    assert "memoryless-8n2m" in (caught.value.expected or "")

    machine = nearpage.Machine.from_short_form(TWO_NODES)
    with pytest.raises(nearpage.ArgumentError) as of_model:
        machine.zoneinfo(model="linux-2.6")
    assert isinstance(of_model.value, ValueError)
    assert of_model.value.place == "model" and "linux-6.12" in (of_model.value.expected or "")
    with pytest.raises(TypeError):
        machine.zoneinfo(model=6)  # type: ignore[arg-type]


@pytest.mark.parametrize("is_long", [False, True])
def test_a_panic_is_an_exception(is_long: bool, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(nearpage.InternalError) as caught:
        _nearpage._panic(is_long)
    assert "asked to" in str(caught.value) and "src/lib.rs" in (caught.value.place or "")
    assert capfd.readouterr() == ("", "")
    # The module goes on.
    assert nearpage.Machine.from_short_form("--numa 1G,cpus=0").fallback() == {0: [0]}
