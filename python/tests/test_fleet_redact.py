"""Redaction: nothing personal is left, and the figures are the same."""

from __future__ import annotations

import io
import json
import re
import tempfile
from pathlib import Path

import pytest
from fleet_help import MIXED, shortened, unpacked, write_folder, write_tar

import nearpage
import nearpage.fleet as fleet
from nearpage.fleet.redact import Redactor

SALT = b"a salt of the tests"
SECRETS = ("secret-tool", "/home/somebody", "jane.example", "hostname-of-jane", "payroll")


def personal(tmp_path: Path) -> Path:
    """A bundle with what is personal wherever a recorder puts it."""
    files = shortened(unpacked(MIXED), 20_000)
    trace = files["trace.txt"].replace(b"            load-", b"     secret-tool-")
    lines = trace.splitlines(keepends=True)
    at = next(index for index, line in enumerate(lines) if b"cmd begin" in line)
    head = b"     secret-tool-71      [000] ....."
    lines[at + 1 : at + 1] = [
        head + b"    15.600000: tracing_mark_write: nearpage: cmd begin /home/somebody\n",
        head + b"    15.600001: tracing_mark_write: payroll x-2     [001] .....    15.600001: a: b\n",
        head + b"    15.600002: sched_process_exec: filename=/home/somebody/payroll pid=1 old_pid=1\n",
        b" => payroll_of_jane.example\n",
        b"   kworker/0:2-pay-72         [000] .....    15.600003: mm_page_free_batched: page=1 pfn=0x1 order=0\n",
    ]
    files["trace.txt"] = b"".join(lines)
    files["meta.json"] = files["meta.json"].replace(b'"note": "', b'"note": "jane.example ').replace(b"debian-kernel", b"jane.example")
    files["cmd.txt"] = b"/home/somebody/payroll\n"
    files["before/dmesg"] += b"[    0.0] hostname-of-jane\n"
    files["before/cmdline"] = b"root=/dev/hostname-of-jane\n"
    files["before/version"] = b"Linux version 6.12.95+deb12-amd64 (jane.example@hostname-of-jane) payroll\n"
    files["before/iomem"] += b"  c0000000-c0000fff : payroll\n"
    files["payroll.txt"] = b"payroll"
    # What perf script --header prints before events.
    files["trace.txt"] = b"# hostname : hostname-of-jane\n# cmdline : /usr/bin/perf record /home/somebody/payroll\n" + files["trace.txt"]
    files["payroll/vmstat"] = b"payroll 1\n"
    files["before/sysctl"] += b"kernel.hostname = hostname-of-jane\n"
    files["before/sysfs"] += b"/sys/class/dmi/id/product_name:payroll\n"
    assert all(any(secret.encode() in content for content in files.values()) for secret in SECRETS)
    return write_tar(files, tmp_path / "payroll.tar.zst")


def test_nothing_personal_is_left_and_the_figures_are_the_same(tmp_path: Path) -> None:
    bundle = personal(tmp_path)
    store = fleet.Store.create(tmp_path / "redacted")
    [one] = fleet.ingest(store, [bundle], salt=SALT)
    assert one.reason is None
    entry = store.entry(str(one.hash))
    assert entry["redacted"] and re.fullmatch("x[0-9a-f]{12}", entry["load"])
    with store.local_bundle(entry["hash"]) as path:
        left = unpacked(path)
    events = store.events(entry["hash"])
    texts = [path.read_bytes() for path in Path(store.url).rglob("*.json")]
    texts += [name.encode() + content for name, content in left.items()]
    texts += [str(events.to_arrow(["comm", "text"]).to_pydict()).encode()]
    for secret in SECRETS:
        assert not any(secret.encode() in text for text in texts), secret
    # What stands for a name is the same in every trace, and kernel threads keep theirs.
    names = set(events.to_arrow(["comm"])["comm"].to_pylist())
    assert Redactor(SALT).name("secret-tool") in names and Redactor(b"another salt").name("secret-tool") not in names
    assert "kworker/0:2" in names
    plain = fleet.Store.create(tmp_path / "plain")
    fleet.ingest(plain, [bundle])
    study = fleet.Study(models=["linux-6.12", "nearpage"], seeds=[0, 1])
    figures = [
        sorted(tuple(row[name] for name in ("model", "seed", "holds", "operations", "kept_pages_mean", "remote_pages", "requests", "whole_mean"))
        for row in fleet.run(study, store=of).to_pylist())
        for of in (store, plain)
    ]
    assert figures[0] == figures[1]
    [recorded] = plain.entries().to_pylist()
    assert entry["fidelity"] == pytest.approx(recorded["fidelity"])


def test_the_damaged_are_redacted_too(tmp_path: Path) -> None:
    folder = write_folder({"meta.json": b"{", "trace.txt": b""}, tmp_path / "payroll of jane.example")
    store = fleet.Store.create(tmp_path / "store")
    [one] = fleet.ingest(store, [folder], salt=SALT)
    assert one.reason
    told = b"".join(path.read_bytes() for path in Path(store.url).rglob("*.json"))
    assert b"payroll" not in told and b"jane" not in told and b"damaged" not in told.replace(b'"damaged"', b"")


def test_reasons_do_not_name_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {name: content for name, content in shortened(unpacked(MIXED), 4000).items() if name != "before/zoneinfo"}
    (tmp_path / "home of jane.example").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "home of jane.example"))
    store = fleet.Store.create(tmp_path / "store")
    [one] = fleet.ingest(store, [write_tar(files, tmp_path / "x.tar.zst")], salt=SALT)
    assert one.reason
    told = b"".join(path.read_bytes() for path in Path(store.url).rglob("*.json"))
    assert b"jane" not in told and b"has no capture before" in told


def test_binary_traces_and_short_salts_are_refused(tmp_path: Path) -> None:
    files = {**shortened(unpacked(MIXED), 4000), "trace.txt": b"\x17\x08Dtracing\x00\x00"}
    store = fleet.Store.create(tmp_path / "store")
    [one] = fleet.ingest(store, [write_tar(files, tmp_path / "x.tar.zst")], salt=SALT)
    assert one.reason and "binary trace cannot be redacted" in one.reason
    with pytest.raises(nearpage.ArgumentError, match="8 bytes or more"):
        fleet.ingest(store, [MIXED], salt=b"short")


def test_the_list_of_cases_holds() -> None:
    """The recorder's ``--redact`` reads the same list."""
    path = Path(__file__).parents[2] / "crates/nearpage-trace/src/record/redact/cases.json"
    cases, redactor = json.loads(path.read_text()), Redactor(SALT)

    def shown(text: bytes) -> str:
        """What became something else has one sign."""
        found = text.decode()
        assert not any(secret in found for secret in cases["secrets"]), found
        return re.sub(r"\b0x(?!ffffea)[0-9a-f]{16}\b", "0x@", re.sub(r"\bx[0-9a-f]{12}\b", "@", found))

    for case in cases["traces"]:
        text = "".join(f"{line}\n" for line in case["in"]).encode()
        lines = b"".join(redactor.trace(io.BytesIO(text), "x")).splitlines()
        assert [shown(line).lstrip() for line in lines] == case["out"], case["of"]
    for release, expected in cases["releases"].items():
        assert shown(redactor._release(release).encode()) == expected
    for case in cases["files"]:
        out = redactor.file(case["name"], case["in"].encode)
        assert (None if out is None else shown(out)) == case["out"], case["name"]


def test_long_lines_and_files_are_refused(tmp_path: Path) -> None:
    files = shortened(unpacked(MIXED), 1000)
    for name, content in (("trace.txt", b"x" * (2 << 20)), ("before/zoneinfo", b"\n" * (65 << 20))):
        store = fleet.Store.create(tmp_path / f"store of {name.replace('/', ' ')}")
        [one] = fleet.ingest(store, [write_tar({**files, name: content}, tmp_path / "x.tar.zst")], salt=SALT)
        assert one.reason and ("line of 1 MiB" in one.reason or "longer than 64 MiB" in one.reason), one.reason


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"            load-71      [003] d..2.  5310.881638: mm_page_free: page=1 pfn=0x2 order=0", b"mm_page_free: page=1 pfn=0x2 order=0"),
        (b"  a-1 [0] b-71      (-------) [003] ....  5310.881638: mm_page_free: page=1 pfn=0x2 order=0", b"mm_page_free: page=1 pfn=0x2 order=0"),
        (b"load    70/71    [003]  5310.881638000: kmem:mm_page_free: page=1 pfn=0x2 order=0", b"kmem:mm_page_free: page=1 pfn=0x2 order=0"),
        (b"load-71    [003]  5310.881638: sched_switch:         prev_comm=payroll", b"sched_switch: redacted"),
        (b"load-71  [003] ..... 1.000000: tracing_mark_write: nearpage: cmd end rc=1", b"tracing_mark_write: nearpage: cmd end rc=1"),
        (b"load-71  [003] ..... 1.000000: tracing_mark_write: nearpage: cmd end rc=1 payroll", b"tracing_mark_write: redacted"),
        (b"payroll", None),
        (b"# cmdline : /usr/bin/perf record payroll", None),
        (b"CPU:3 [LOST 12 EVENTS]", b"CPU:3 [LOST 12 EVENTS]"),
    ],
)
def test_lines_of_all_tools_are_redacted(line: bytes, expected: bytes | None) -> None:
    redacted = Redactor(SALT).line(line)
    if expected is None:
        assert redacted is None
        return
    assert redacted is not None and redacted.endswith(expected), redacted
    assert b"load" not in redacted and b"a-1 [0] b" not in redacted and b"payroll" not in redacted


def test_addresses_and_names_of_kernels_are_redacted() -> None:
    """KASLR hides where a kernel is; pointers to pages still tell the same distances."""
    head = b"load-71 [003] ..... 1.000000: "
    trace = (
        b"mm_page_free: page=fffff1c2c5287280 pfn=0x4a1ca order=0",
        b"nearpage_bulk_done: (f <- g) n=0x2 p0=0xfffff1c2c5287280 p1=0xfffff1c2c52872c0",
        b"kmalloc: call_site=acme_probe+0x1/0x2 [acme] ptr=ffff9c1234567890 bytes_req=8",
        b"contention_begin: 0xffffffffa2345678 (flags=SPIN)",
        b"mm_page_free: page=00000000c5287280 pfn=0x4a1ca order=0",
    )
    redactor = Redactor(SALT)
    text = b"".join(redactor.trace(io.BytesIO(b"\n".join(head + line for line in trace)), "x")).decode()
    lines = [line.split(": ", 2)[2] for line in text.splitlines()]
    pages = [0xFFFFEA0000000000 + 64 * pfn for pfn in (0x4A1CA, 0x4A1CB)]
    assert lines[0] == f"page={pages[0]:016x} pfn=0x4a1ca order=0"
    assert lines[1].endswith(f"p0=0x{pages[0]:x} p1=0x{pages[1]:x}")
    assert lines[4] == "page=00000000c5287280 pfn=0x4a1ca order=0"
    assert not any(secret in text for secret in ("fffff1c2", "acme", "ffff9c12", "ffffffffa2"))
    version = redactor.file("before/version", lambda: b"Linux version 6.12.95-acme-prod (jane@x) y\n")
    assert version is not None and re.fullmatch(rb"Linux version 6\.12\.95-x[0-9a-f]{12}\n", version)
    iomem = b"00100000-3fffffff : System RAM\n  02000000-02dfffff : Kernel code\n"
    assert redactor.file("before/iomem", lambda: iomem) == iomem.splitlines(keepends=True)[0]
