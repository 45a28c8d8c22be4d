"""Bundles without what is personal: names are hashed with a salt, and what a replay does not need is left out.

Kept are the figures of the machine, the events of the page allocator, and names that every kernel has (``kswapd0``). The numbers
of a kernel's release are kept, and the rest, in which companies write their names, becomes ``x`` and digits likewise. Addresses
of the kernel, which tell where it was placed, become tokens; pointers to descriptions of pages begin where those of a kernel do
that was not moved. Names of tasks become ``x`` with 12 hexadecimal digits of an HMAC, the same in every trace with the same
salt, so that they can still be told apart. Command lines, notes, logs, times of day, and texts that programs wrote into the trace are left out.
"""

from __future__ import annotations

import hashlib
import hmac
import io
import json
import re
import tarfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from ..errors import ArgumentError, StoreError

__all__ = ["Redactor"]

#: What is kept of ``meta.json``.
_META = (
    "format kernel arch page_size clock cpus cpus_online nodes_online nodes_with_memory mem_total_kb exit_status start_uptime "
    "end_uptime sample_every_s tail_s streamed raw_pointers snapshots buffer_kb_per_cpu events_enabled per_cpu lost_events "
    "event_counts event_lines lost_lines"
).split()

#: The folders of captures; names of others are a user's.
_CAPTURES = ("before", "cmdend", "after")
#: What is kept of a capture as it is: figures of the kernel.
_FIGURES = "zoneinfo zoneinfo.again buddyinfo pagetypeinfo vmstat meminfo".split()

#: What is kept of settings: those about memory. Others are names of machines and paths.
_LINES = {"sysctl": re.compile(rb"vm\."), "sysfs": re.compile(rb"/sys/(?:devices/system|kernel/mm|module/page_\w+)/")}

#: Names that kernels give to their own threads.
_KERNEL = re.compile(
    rb"<idle>|<\.\.\.>|swapper/\d+|kthreadd|kswapd\d+|kcompactd\d+|khugepaged|ksoftirqd/\d+|migration/\d+|cpuhp/\d+"
    rb"|rcu_(?:bh|gp|par_gp|preempt|sched|tasks_(?:kthre(?:ad)?|rude_|trace))|rcu(?:[bc]|og|op)/\d+|oom_reaper|kworker/u?\d+:\d+H?"
)
_WORKER = re.compile(rb"(kworker/u?\d+:\d+H?)[-+].*")
_LINE = re.compile(
    rb"^ *(?P<comm>\S.{0,14}?)(?P<by> *[- ] *)(?P<pid>(?:\d+/)?\d+)(?P<cpu> +(?:\( *[-\d]+\) +)?\[\d+\] +(?:[^\s:]+ +)?)"
    rb"(?P<time>\d+\.\d+: +)(?P<group>[\w.-]+:)?(?P<event>[\w.-]+):(?P<fields> .*|)$"
)
#: The numbers of a release: which rules a kernel has is told by them.
_RELEASE = re.compile(r"\d+(?:\.\d+)*(?:-rc\d+)?")
#: Pointers to descriptions of pages, which a replay compares with each other; and addresses of the kernel, with names of modules.
_PLACE = re.compile(rb"^ *\([^)]*\)")
_ADDRESS = re.compile(
    rb"\b(?P<name>page|p\d+)=(?:0x)?(?P<page>[0-9a-f]+)\b"
    rb"|\b(?P<field>(?:ptr|call_site)=)(?P<value>\S+)(?: \[\S+\])?|\b(?:0x)?(?P<address>ffff[0-9a-f]{12})\b"
)
_PFN = re.compile(rb"\bpage=(?:0x)?([0-9a-f]+) pfn=(?:0x)?([0-9a-f]+)\b")
#: Where descriptions of pages begin on x86-64 without KASLR, and the bytes of each.
_PAGES_BEGIN = 0xFFFF_EA00_0000_0000
_PAGE_BYTES = 64
_MARKER = re.compile(rb" *nearpage: (?:before|after|cmd|cmdend|sample \d+) (?:begin|end)(?: rc=-?\d+)?$")
#: The work whose beginning a replay looks for.
_UPKEEP = re.compile(rb" .*function vmstat_update\s*$")
#: A comment that the tracer writes.
_HEADING = b"# tracer: nop"
#: Bytes of a line, and of a file beside the trace, at most: those of the readers.
_LINE_BYTES = 1 << 20
_FILE_BYTES = 64 << 20
_LOST = re.compile(rb"^CPU:\d+ \[LOST( \d+)? EVENTS\]$")
#: Events whose fields are about memory alone.
_EVENTS = frozenset(
    b"mm_page_alloc mm_page_free mm_page_free_batched mm_page_alloc_zone_locked mm_page_pcpu_drain mm_page_alloc_extfrag "
    b"nearpage_bulk nearpage_bulk_done kmem_cache_alloc kmem_cache_free kmalloc kfree kmalloc_node kmem_cache_alloc_node "
    b"contention_begin contention_end".split()
)


class Redactor:
    """Redacts with a salt, which is to be kept secret: whoever has it can try names."""

    def __init__(self, salt: bytes) -> None:
        if len(salt) < 8:
            raise ArgumentError("the salt is short, expected 8 bytes or more", "salt", "8 bytes or more")
        self._salt = salt
        self._known: dict[bytes, bytes] = {}
        #: Where descriptions of pages begin in the trace that is read, once a line told it.
        self._pages_begin: int | None = None

    def name(self, text: str) -> str:
        """What stands for a name."""
        return self._token(text.encode(errors="surrogateescape")).decode()

    def _token(self, text: bytes) -> bytes:
        return b"x" + hmac.new(self._salt, text, hashlib.sha256).hexdigest()[:12].encode()

    def _task(self, comm: bytes) -> bytes:
        known = self._known.get(comm)
        if known is None:
            worker = _WORKER.fullmatch(comm)
            known = worker[1] if worker else comm if _KERNEL.fullmatch(comm) else self._token(comm)
            self._known[comm] = known
        return known

    def line(self, line: bytes) -> bytes | None:
        """A line of a trace without what is personal, or None if nothing is known of it."""
        if line == _HEADING or _LOST.match(line):
            return line
        # A reader skips other comments; of perf they have the machine's name and the command line.
        if line.startswith(b"#"):
            return None
        found = _LINE.match(line)
        if not found:
            return None
        comm, by, pid, cpu, time, group, event, fields = found.groups()
        if event == b"tracing_mark_write":
            fields = fields if _MARKER.match(fields) else b" redacted"
        elif event == b"workqueue_execute_start":
            fields = fields if _UPKEEP.match(fields) else b" redacted"
        elif event not in _EVENTS:
            fields = b" redacted"
        else:
            fields = self._addresses(fields)
        return b"".join((self._task(comm).rjust(16), by, pid, cpu, time, group or b"", event, b":", fields))

    def _release(self, release: str) -> str:
        """A release, of which the numbers are kept."""
        numbers = _RELEASE.match(release)
        kept = numbers[0] if numbers else ""
        rest = release[len(kept) :]
        return f"{kept}-{self.name(rest)}" if rest else kept

    def _addresses(self, fields: bytes) -> bytes:
        """Fields of an event without addresses of the kernel."""

        def without(found: re.Match[bytes]) -> bytes:
            if found["page"] is None:
                text = found["value"] or found["address"]
                return (found["field"] or b"") + b"0x" + hmac.new(self._salt, text, hashlib.sha256).hexdigest()[:16].encode()
            pointer = int(found["page"], 16)
            if pointer < 1 << 63:
                # None, or hashed by the kernel.
                return found[0]
            if self._pages_begin is None:
                return found["name"] + b"=0"
            moved = (pointer - self._pages_begin + _PAGES_BEGIN) % (1 << 64)
            return found["name"] + b"=%s%016x" % (b"0x" if b"=0x" in found[0] else b"", moved)

        pair = _PFN.search(fields)
        if self._pages_begin is None and pair and int(pair[1], 16) >= 1 << 63:
            self._pages_begin = int(pair[1], 16) - int(pair[2], 16) * _PAGE_BYTES
        # Where a probe is: functions, and names of modules.
        fields = _PLACE.sub(b" (redacted)", fields)
        return _ADDRESS.sub(without, fields)

    def trace(self, source: BinaryIO, place: str) -> Iterator[bytes]:
        """The lines of a trace, in parts."""
        part: list[bytes] = []
        self._pages_begin = None
        while line := source.readline(_LINE_BYTES):
            if b"\0" in line:
                raise _binary(place)
            if len(line) == _LINE_BYTES:
                raise StoreError(f"{place}: a line of 1 MiB, expected lines of less", place, "lines of less than 1 MiB")
            redacted = self.line(line.rstrip(b"\r\n"))
            if redacted is not None:
                part.append(redacted)
            if len(part) >= 1 << 14:
                yield b"\n".join(part) + b"\n"
                part.clear()
        if part:
            yield b"\n".join(part) + b"\n"

    def file(self, name: str, content: Callable[[], bytes]) -> bytes | None:
        """A file of a bundle beside its trace, or None if it is left out."""
        folder, _, last = name.rpartition("/")
        if name == "meta.json":
            return self._meta(content())
        if name == "samples.txt":
            return content()
        if folder not in _CAPTURES:
            return None
        if last in _FIGURES:
            return content()
        if last in _LINES:
            return b"".join(line for line in content().splitlines(keepends=True) if _LINES[last].match(line))
        if last == "version":
            found = re.match(rb"Linux version (\S+)", content())
            release = self._release(found[1].decode(errors="surrogateescape")) if found else ""
            return f"Linux version {release}\n".encode() if found else b""
        if last == "iomem":
            # Devices are left out, and where the kernel is.
            lines = content().splitlines(keepends=True)
            return b"".join(line for line in lines if re.search(rb": (System RAM|Persistent Memory)\s*$", line))
        return None

    def _meta(self, content: bytes) -> bytes:
        meta: dict[str, Any] = json.loads(content)
        kept = {key: meta[key] for key in _META if key in meta}
        for key in ("name", "twin_of", "host"):
            if key in meta:
                kept[key] = self.name(str(meta[key]))
        if "kernel" in kept:
            kept["kernel"] = self._release(str(kept["kernel"]))
        kept["version"] = f"Linux version {kept.get('kernel', '')}"
        kept["redacted"] = 1
        return json.dumps(kept, indent=1, ensure_ascii=False).encode()

    def bundle(self, members: Iterator[tuple[str, BinaryIO]], path: Path, place: str) -> None:
        """Writes the bundle that is left of some files, by their names within it and their unpacked content."""
        with pa.CompressedOutputStream(str(path), "zstd") as packed, tarfile.open(fileobj=packed, mode="w|") as archive:
            for name, content in members:
                if name in ("trace.dat", "perf.data"):
                    raise _binary(place)
                if name == "trace.txt":
                    with Path(f"{path}.trace").open("w+b") as kept:
                        Path(kept.name).unlink()
                        for part in self.trace(content, place):
                            kept.write(part)
                        size = kept.tell()
                        kept.seek(0)
                        _add(archive, name, size, kept)
                else:
                    redacted = self.file(name, partial(_whole, content, place))
                    if redacted is not None:
                        _add(archive, name, len(redacted), io.BytesIO(redacted))


def _binary(place: str) -> StoreError:
    expected = "a trace as text (nearpage replay --trace reads binary ones; trace-cmd report and perf script print them)"
    return StoreError(f"{place}: a binary trace cannot be redacted, expected {expected}", place, expected)


def _whole(content: BinaryIO, place: str) -> bytes:
    """All of a file that is no trace."""
    whole = content.read(_FILE_BYTES + 1)
    if len(whole) > _FILE_BYTES:
        raise StoreError(f"{place}: a file longer than 64 MiB, expected files of a bundle", place, "files of a bundle")
    return whole


def _add(archive: tarfile.TarFile, name: str, size: int, content: Any) -> None:
    member = tarfile.TarInfo(name)
    member.size = size
    archive.addfile(member, content)
