"""Objects of a store: whole ones, by name, in a folder or by fsspec.

What a store needs of its files is little, and all of it is here: an object appears wholly or not at all; :meth:`Files.create`
makes one unless there is one, and tells; nothing is ever changed in its place. On a local path an object is written beside under
a name of its own and then linked; on an object store it is put with the condition that there is none (``If-None-Match: *``).
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import secrets
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Protocol, Union

from ..errors import StoreError

__all__ = ["Files", "open_files", "process_is_gone", "this_process"]

#: Objects that are asked for at once.
_AT_ONCE = 512


class Files(Protocol):
    """Objects below a URL. Names are relative, with ``/``. What is not there raises ``FileNotFoundError``."""

    url: str

    def read(self, name: str) -> bytes: ...
    def read_many(self, names: Iterable[str]) -> Iterator[tuple[str, bytes | None]]:
        """Some objects, in any order; None for one that is not there."""

    def source(self, name: str) -> Union[str, BinaryIO]:
        """What pyarrow reads an object from: a path, or a file that seeks."""

    def create(self, name: str, content: bytes) -> bool:
        """Makes an object unless there is one: whether this call made it."""

    def replace(self, name: str, content: bytes) -> None: ...
    def publish(self, name: str, path: Path) -> None:
        """Makes or replaces an object from a local file."""

    def names(self, folder: str) -> Iterator[str]:
        """All names below a folder, in any order."""

    def delete(self, name: str) -> None:
        """Deletes an object if there is one."""

    def local(self, name: str) -> contextlib.AbstractContextManager[Path]:
        """A local file with the content of an object, for as long as the context lives."""

    def sweep(self) -> None:
        """Removes what writers left behind that are no more."""


def open_files(url: str | os.PathLike[str], options: dict[str, Any] | None = None) -> Files:
    """The objects below a URL; a local path needs no fsspec."""
    text = os.fspath(url)
    if text.startswith("file://"):
        text = text[len("file://") :]
    return RemoteFiles(text, options or {}) if "://" in text else LocalFiles(Path(text))


#: What does not change while this process lives. Reading it from /proc takes as long as all else that a claim does.
_known: dict[str, str] = {}


def _boot() -> str:
    """Where numbers of processes mean the same: this boot of this machine, and within it this PID namespace. Containers of one machine
    do not see each other's processes."""
    if "boot" not in _known:
        parts = []
        with contextlib.suppress(OSError):
            parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
            parts.append(os.readlink("/proc/self/ns/pid"))
        _known["boot"] = hashlib.sha256(" ".join(parts).encode()).hexdigest()[:32]
    return _known["boot"]


def _begun(pid: int) -> str | None:
    """When a process began, in ticks since boot: numbers of processes come again. None if it is no more."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    # What is dead and not waited for does nothing any more.
    return None if state[0] in "ZX" else state[19]


def this_process() -> dict[str, Any]:
    """Who this is, so that others can tell whether it still is."""
    pid = os.getpid()
    # By its number: a child that was forked has another.
    if str(pid) not in _known:
        _known[str(pid)] = _begun(pid) or ""
    return {"boot": _boot(), "pid": pid, "begun": _known[str(pid)]}


def process_is_gone(process: dict[str, Any]) -> bool:
    """Whether a process of this machine is no more. Of other machines and containers nothing is known."""
    if process.get("boot") != _boot() or not isinstance(process.get("pid"), int):
        return False
    return _begun(process["pid"]) != process.get("begun")


class LocalFiles:
    """Objects in a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.url = os.fspath(root)
        #: Folders that are there.
        self._made: set[str] = set()

    def _path(self, name: str) -> Path:
        return self.root / name

    def read(self, name: str) -> bytes:
        return self._path(name).read_bytes()

    def read_many(self, names: Iterable[str]) -> Iterator[tuple[str, bytes | None]]:
        for name in names:
            try:
                yield name, self.read(name)
            except FileNotFoundError:
                yield name, None

    def source(self, name: str) -> Union[str, BinaryIO]:
        # Not a file of Python's: reading from a path takes a third of the time.
        path = self._path(name)
        path.stat()
        return os.fspath(path)

    @contextlib.contextmanager
    def _beside(self, name: str) -> Iterator[Path]:
        """A name on the same file system for what is not whole yet."""
        for folder in (".tmp", name.rpartition("/")[0]):
            if folder not in self._made:
                self._path(folder).mkdir(parents=True, exist_ok=True)
                self._made.add(folder)
        own = this_process()
        beside = self.root / ".tmp" / f"{own['boot'][:8]}.{own['pid']}.{own['begun']}.{secrets.token_hex(6)}"
        try:
            yield beside
        finally:
            beside.unlink(missing_ok=True)

    def create(self, name: str, content: bytes) -> bool:
        with self._beside(name) as beside:
            beside.write_bytes(content)
            try:
                os.link(beside, self._path(name))
            except FileExistsError:
                return False
        return True

    def replace(self, name: str, content: bytes) -> None:
        with self._beside(name) as beside:
            beside.write_bytes(content)
            os.replace(beside, self._path(name))

    def publish(self, name: str, path: Path) -> None:
        with self._beside(name) as beside, path.open("rb") as source, beside.open("wb") as target:
            while part := source.read(1 << 20):
                target.write(part)
            target.flush()
            os.fsync(target.fileno())
            os.replace(beside, self._path(name))

    def names(self, folder: str) -> Iterator[str]:
        pending = [folder.rstrip("/")]
        while pending:
            below = pending.pop()
            with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(self._path(below)) as found:
                for entry in found:
                    name = f"{below}/{entry.name}" if below else entry.name
                    if entry.is_dir(follow_symlinks=False):
                        if name != ".tmp":
                            pending.append(name)
                    else:
                        yield name

    def delete(self, name: str) -> None:
        self._path(name).unlink(missing_ok=True)

    @contextlib.contextmanager
    def local(self, name: str) -> Iterator[Path]:
        path = self._path(name)
        if not path.exists():
            raise FileNotFoundError(path)
        yield path

    def sweep(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            for left in (self.root / ".tmp").iterdir():
                boot, _, rest = left.name.partition(".")
                pid, _, begun = rest.partition(".")
                process = {"boot": _boot() if _boot()[:8] == boot else boot, "pid": int(pid) if pid.isdigit() else None}
                if process_is_gone({**process, "begun": begun.partition(".")[0]}):
                    left.unlink(missing_ok=True)


class RemoteFiles:
    """Objects by fsspec: ``s3://``, ``gs://`` and what else it knows and can put with a condition."""

    def __init__(self, url: str, options: dict[str, Any]) -> None:
        try:
            import fsspec
        except ImportError as error:
            message = f"{url}: needs fsspec, expected a local path or the package (pip install fsspec s3fs)"
            raise StoreError(message, url, "a local path, or the package fsspec") from error
        try:
            # What others put must be seen, so nothing is remembered of listings.
            self.fs, root = fsspec.core.url_to_fs(url, use_listings_cache=False, **options)
        except (ImportError, ValueError, TypeError) as error:
            raise StoreError(f"{url}: {error}, expected a URL of fsspec", url, "a URL of fsspec") from error
        self.root = root.rstrip("/")
        self.url = url

    def _path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def read(self, name: str) -> bytes:
        return bytes(self.fs.cat_file(self._path(name)))

    def read_many(self, names: Iterable[str]) -> Iterator[tuple[str, bytes | None]]:
        waiting = iter(names)
        while some := list(itertools.islice(waiting, _AT_ONCE)):
            # fsspec answers a list of one path with its content alone.
            paths = [self._path(name) for name in some]
            found = self.fs.cat(paths, on_error="return") if len(paths) > 1 else {paths[0]: self._one(paths[0])}
            for name, path in zip(some, paths):
                content = found.get(path)
                if isinstance(content, FileNotFoundError):
                    content = None
                elif isinstance(content, Exception):
                    raise content
                yield name, content

    def _one(self, path: str) -> bytes | None:
        try:
            return bytes(self.fs.cat_file(path))
        except FileNotFoundError:
            return None

    def source(self, name: str) -> Union[str, BinaryIO]:
        return self.fs.open(self._path(name), "rb")  # type: ignore[no-any-return]

    def create(self, name: str, content: bytes) -> bool:
        try:
            self.fs.pipe_file(self._path(name), content, mode="create")
        except FileExistsError:
            return False
        return True

    def replace(self, name: str, content: bytes) -> None:
        self.fs.pipe_file(self._path(name), content)

    def publish(self, name: str, path: Path) -> None:
        self.fs.put_file(os.fspath(path), self._path(name))

    def names(self, folder: str) -> Iterator[str]:
        self.fs.invalidate_cache()
        below = self._path(folder.rstrip("/"))
        try:
            found = self.fs.find(below)
        except FileNotFoundError:
            return
        for path in found:
            yield str(path)[len(self.root) + 1 :]

    def delete(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.fs.rm_file(self._path(name))

    @contextlib.contextmanager
    def local(self, name: str) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix="nearpage-fleet-") as folder:
            path = Path(folder) / name.rpartition("/")[2]
            self.fs.get_file(self._path(name), os.fspath(path))
            yield path

    def sweep(self) -> None:
        """Nothing: what was put in part never appears."""
