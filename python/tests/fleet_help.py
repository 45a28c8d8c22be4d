"""What the tests of nearpage.fleet share: small bundles that are quick to replay, and stores of them."""

from __future__ import annotations

import hashlib
import io
import tarfile
from pathlib import Path

import pyarrow as pa
import pytest

import nearpage.fleet as fleet

BUNDLES = Path(__file__).parents[2] / "bundles"
MIXED = BUNDLES / "q612-n2-mixed.tar.zst"


def unpacked(bundle: Path) -> dict[str, bytes]:
    """The files of a bundle that comes along, by their names within it."""
    with pa.input_stream(str(bundle), compression="zstd") as packed, tarfile.open(fileobj=packed, mode="r|") as archive:
        files = {}
        for member in archive:
            content = archive.extractfile(member) if member.isfile() else None
            if content is not None:
                files[member.name.partition("/")[2] if member.name.count("/") and not member.name.startswith(("before", "after", "cmdend")) else member.name] = content.read()
    return files


def shortened(files: dict[str, bytes], keep: int) -> dict[str, bytes]:
    """The same with the beginning of the trace, up to so many lines, and its end."""
    lines = files["trace.txt"].splitlines(keepends=True)
    end = next(at for at, line in enumerate(lines) if b"nearpage: after begin" in line)
    return {**files, "trace.txt": b"".join(lines[: min(keep, end)] + lines[end:])}


def write_folder(files: dict[str, bytes], folder: Path) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def write_tar(files: dict[str, bytes], path: Path) -> Path:
    with pa.CompressedOutputStream(str(path), "zstd") as packed, tarfile.open(fileobj=packed, mode="w|") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"any/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def content_of(store: fleet.Store, folder: str = "results") -> dict[str, str]:
    """Hashes of all objects below a folder of a store, by their names."""
    return {name: hashlib.sha256(store.files.read(name)).hexdigest() for name in store.files.names(folder)}


@pytest.fixture(scope="session")
def small_bundles(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two short bundles: other lengths of the same recording."""
    files = unpacked(MIXED)
    folder = tmp_path_factory.mktemp("bundles")
    return [write_tar(shortened(files, lines), folder / f"{name}.tar.zst") for name, lines in (("short", 6000), ("longer", 12_000))]


@pytest.fixture(scope="session")
def small_store(small_bundles: list[Path], tmp_path_factory: pytest.TempPathFactory) -> fleet.Store:
    """A store with the short bundles. Tests that change a store copy it."""
    store = fleet.Store.create(tmp_path_factory.mktemp("fleet") / "store")
    assert all(one.is_new for one in fleet.ingest(store, small_bundles))
    return store


@pytest.fixture
def own_store(small_store: fleet.Store, tmp_path: Path) -> fleet.Store:
    """A copy of the store with the short bundles."""
    import shutil

    shutil.copytree(small_store.url, tmp_path / "store")
    return fleet.Store.open(tmp_path / "store")
