"""The command ``nearpage-fleet``. It shows what the package does; exit status 0: done, 1: something is damaged or failed, 2: the
input is wrong."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .. import _nearpage
from ..errors import ArgumentError, NearpageError, RunError
from .executors import Dask, Executor, InProcess, Processes, Ray
from .ingest import ingest
from .run import LEASE, run
from .store import USUAL, Store
from .study import Study

__all__ = ["main"]

#: Commands of modules that bring their own arguments.
_ELSEWHERE = {
    "report": "a study's answers as a page of HTML",
    "tune": "search settings for an objective",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; its exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Names have any letters, wherever they are shown.
            stream.reconfigure(errors="backslashreplace")
    try:
        parsed = _parser(given).parse_args(given)
        status = int(parsed.command(parsed) or 0)
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        # Who reads has enough. Python writes what is left when it ends.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except RunError as error:
        print(f"nearpage-fleet: {error}", file=sys.stderr)
        for key, reason in list(error.failures.items())[:20]:
            print(f"  {key[:12]}  {reason}", file=sys.stderr)
        return 1
    except NearpageError as error:
        print(f"nearpage-fleet: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"nearpage-fleet: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nnearpage-fleet: interrupted; what is finished is in the store", file=sys.stderr)
        return 130


def _parser(given: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="nearpage-fleet", description="Many recordings, studied together: a store, studies, and their answers."
    )
    parser.add_argument("--version", action="version", version=f"nearpage-fleet {_nearpage.__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    if given and given[0].startswith("--") and given[0] not in ("--help", "--version"):
        parser.error(f"{given[0]} stands before the command, expected nearpage-fleet COMMAND {given[0]} ...")

    def command(name: str, what: str, does: Callable[[argparse.Namespace], int]) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=what, description=f"{what[0].upper()}{what[1:]}.")
        added.set_defaults(command=does)
        return added

    of = command("ingest", "take bundles into a store", _ingest)
    of.add_argument("paths", nargs="+", metavar="PATH", help="a bundle, or a folder in which to look for bundles")
    of.add_argument("--load", metavar="NAME", help="what ran (default: the name of the bundle)")
    of.add_argument("--machine", metavar="NAME", help="where it ran (default: the machine is described)")
    of.add_argument("--host", metavar="NAME", help="the host that recorded (default: what the recording says)")
    of.add_argument("--service", metavar="NAME", help="what the host is for")
    of.add_argument("--tag", action="append", default=[], metavar="KEY=VALUE", help="a word of yours; may be given several times")
    of.add_argument("--workers", type=int, default=0, metavar="N", help="processes of this machine that take bundles in (default: 0, this one)")
    of.add_argument("--redact", action="store_true", help="hash names of tasks, and leave out what is personal")
    of.add_argument("--salt-file", metavar="FILE", help="the secret that names are hashed with, 8 bytes or more")
    _store_of(of)
    of = command("ls", "list the entries of a store", _ls)
    of.add_argument("--json", action="store_true", help="as JSON")
    _store_of(of)
    of = command("show", "show an entry of a store", _show)
    of.add_argument("hash", metavar="HASH", help="the beginning of its hash, 4 digits or more")
    of.add_argument("--events", type=_count, default=0, metavar="N", help="and its first N events")
    of.add_argument("--json", action="store_true", help="as JSON")
    _store_of(of)
    of = command("run", "compute what a study lacks", _run)
    of.add_argument("study", metavar="STUDY.toml", help="what is to be computed")
    where = of.add_mutually_exclusive_group()
    where.add_argument("--workers", type=int, metavar="N", help="processes of this machine (default: one a CPU; 0: none)")
    where.add_argument("--dask", type=int, metavar="N", help="a local Dask cluster with N workers")
    where.add_argument("--scheduler", metavar="ADDRESS", help="a Dask scheduler, such as tcp://HOST:8786")
    where.add_argument("--ray", metavar="ADDRESS", help="Ray: auto, ray://HOST:10001, or local")
    of.add_argument("--lease", type=float, default=LEASE, metavar="SECONDS", help=f"a silent claim lasts so long (default: {LEASE:.0f})")
    of.add_argument("--output", metavar="FILE", help="write the table of results: .csv, .json or .parquet")
    of.add_argument("--quiet", action="store_true", help="show no progress")
    _store_of(of)
    of = command("sql", "answer a statement of SQL over entries, results, events and fidelity", _sql)
    of.add_argument("statement", metavar="SQL", help="such as: select host, avg(fidelity) from entries group by host")
    of.add_argument("--output", metavar="FILE", help="write the answer: .csv, .json or .parquet")
    _store_of(of)
    of = command("calibrate", "compare what the model predicts with what kernels logged, over all entries", _calibrate)
    of.add_argument("--by", action="append", default=[], choices=["kernel", "load", "host"], help="for each of these; may be given several times")
    of.add_argument("--json", action="store_true", help="as JSON")
    _store_of(of)
    of = command("rm", "delete entries with their events and results", _rm)
    of.add_argument("hashes", nargs="+", metavar="HASH", help="the beginning of a hash, 4 digits or more")
    _store_of(of)
    of = command("gc", "delete what nothing refers to (not while bundles are taken in)", _gc)
    of.add_argument("--other-versions", action="store_true", help="and results of other versions")
    _store_of(of)
    of = command("merge", "take the entries and results of another store", _merge)
    of.add_argument("other", metavar="URL", help="the other store; it stays as it is")
    _store_of(of)
    of = command("export", "write entries, results and fidelity as Parquet into a new folder", _export)
    of.add_argument("folder", metavar="FOLDER")
    of.add_argument("--events", action="store_true", help="and all events, in folders entry=HASH")
    _store_of(of)
    for name, what in _ELSEWHERE.items():
        added = commands.add_parser(name, help=what, description=f"{what[0].upper()}{what[1:]}.")
        if given[:1] == [name]:
            # What it needs is loaded when it is asked for.
            module = importlib.import_module(f"nearpage.fleet.{name}")
            module.add_arguments(added)
            added.set_defaults(command=module.command)
    return parser


def _store_of(parser: argparse.ArgumentParser) -> None:
    text = f"a folder, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX (default: {USUAL})"
    parser.add_argument("--store", default=USUAL, metavar="URL", help=text)


def _count(text: str) -> int:
    count = int(text) if text.isascii() and text.isdigit() else None
    if count is None:
        raise argparse.ArgumentTypeError(f"{text!r}, expected a number from 0 on")
    return count


def _shown(text: str) -> str:
    """A text of a recording or of a user on one line: what moves a cursor, or turns a line round, is escaped."""
    return "".join(of if of.isprintable() else of.encode("unicode_escape", "backslashreplace").decode() for of in text)


def _bar(what: str, is_quiet: bool = False) -> Callable[[int, int], None] | None:
    if is_quiet or not sys.stderr.isatty():
        return None

    def show(done: int, whole: int) -> None:
        print(f"\r{done} of {whole} {what}", end="" if done < whole else "\n", file=sys.stderr, flush=True)

    return show


def _ingest(arguments: argparse.Namespace) -> int:
    salt = None
    if arguments.redact != (arguments.salt_file is not None):
        lacking = "--salt-file FILE" if arguments.redact else "--redact"
        print(f"nearpage-fleet: --redact and --salt-file go together, expected {lacking}, too", file=sys.stderr)
        return 2
    if arguments.redact:
        try:
            salt = Path(arguments.salt_file).read_bytes().strip()
        except OSError as error:
            expected = "a file with 8 bytes or more"
            raise NearpageError(f"--salt-file: {error}, expected {expected}", arguments.salt_file, expected) from error
    tags = dict(_tag(text) for text in arguments.tag)
    executor: Executor = Processes(arguments.workers) if arguments.workers else InProcess()
    store = Store.create(arguments.store)
    done = ingest(
        store, arguments.paths, load=arguments.load, machine=arguments.machine, host=arguments.host, service=arguments.service, tags=tags, salt=salt,
        executor=executor, progress=_bar("bundles"),
    )  # fmt: skip
    for one in done:
        state = f"damaged: {_shown(one.reason)}" if one.reason else "new" if one.is_new else "there already"
        print(f"{(one.hash or '-')[:12]:12}  {_shown(one.source)}  {state}")
    damaged = sum(one.reason is not None for one in done)
    new = sum(one.is_new for one in done)
    print(f"{len(done)} bundles: {new} new, {len(done) - new - damaged} there already, {damaged} damaged")
    return 1 if damaged else 0


def _tag(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ArgumentError(f"--tag {text!r}, expected KEY=VALUE", "tag", "KEY=VALUE")
    return key.strip(), value


def _ls(arguments: argparse.Namespace) -> int:
    store = Store.open(arguments.store)
    entries, damaged = store.entries().to_pylist(), store.damaged().to_pylist()
    if arguments.json:
        _print_json({"schema": 1, "entries": entries, "damaged": damaged})
        return 0
    rows: list[tuple[str, ...]] = [("hash", "load", "kernel", "host", "machine", "seconds", "events", "lost", "fidelity %")]
    for of in entries:
        fidelity = "-" if of["fidelity"] is None else f"{of['fidelity']:.2f}"
        rows.append(
            (of["hash"][:12], of["load"], of["kernel"], of["host"] or "-", of["machine"], f"{of['seconds']:.1f}", str(of["events"]), str(of["lost_events"]), fidelity)
        )
    _print_table(rows, numbers_from=5)
    for one in damaged:
        print(f"damaged: {_shown(one['source'])}: {_shown(one['reason'])}")
    print(f"{len(entries)} entries, {len(damaged)} damaged")
    return 0


def _print_json(document: object) -> None:
    is_any = str(sys.stdout.encoding).lower().replace("-", "") == "utf8"
    # Times are the only values that JSON has no form of.
    print(json.dumps(document, ensure_ascii=not is_any, indent=1, default=str))


def _print_table(rows: list[tuple[str, ...]], numbers_from: int) -> None:
    rows = [tuple(map(_shown, row)) for row in rows]
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    for row in rows:
        cells = (cell.rjust(width) if at >= numbers_from else cell.ljust(width) for at, (cell, width) in enumerate(zip(row, widths)))
        print("  ".join(cells).rstrip())


def _show(arguments: argparse.Namespace) -> int:
    store = Store.open(arguments.store)
    entry = store.entry(arguments.hash)
    first: list[dict[str, Any]] = []
    if arguments.events > 0:
        for batch in store.events(entry["hash"]).batches(rows=arguments.events):
            first = batch.slice(0, arguments.events).to_pylist()
            break
    for event in first:
        event["time"] = event["time"].value if hasattr(event["time"], "value") else int(event["time"].total_seconds() * 1e9)
    if arguments.json:
        _print_json({**entry, **({"first_events": first} if first else {})})
        return 0
    for name, value in entry.items():
        if name != "format":
            print(f"{name:18}  {'-' if value is None else _shown(str(value))}")
    for event in first:
        told = " ".join(f"{name}={value}" for name, value in event.items() if value is not None and name not in ("time", "cpu", "event", "pid", "comm"))
        print(f"{event['time'] / 1e9:16.9f}  cpu {event['cpu']:<3} {_shown(event['comm'])}-{event['pid']}  {event['event']}  {_shown(told)}".rstrip())
    return 0


def _sql(arguments: argparse.Namespace) -> int:
    if arguments.output:
        _check_output(Path(arguments.output))
    answer = Store.open(arguments.store).sql(arguments.statement)
    if arguments.output:
        _write(answer, arguments.output)
        return 0
    rows = [tuple("-" if value is None else str(value) for value in row.values()) for row in answer.to_pylist()]
    _print_table([tuple(answer.column_names), *rows], numbers_from=len(answer.column_names))
    return 0


def _calibrate(arguments: argparse.Namespace) -> int:
    from .calibration import calibrate, to_arrow
    from .sql import fidelity_of

    calibrated = calibrate(fidelity_of(Store.open(arguments.store).entries()), by=arguments.by)
    if arguments.json:
        _print_json({"schema": 1, "calibration": to_arrow(calibrated).to_pylist() if calibrated else []})
        return 0
    for of in calibrated:
        print(_shown(str(of)))
    if not calibrated:
        print("no entry's kernel logged anything to compare with")
    return 0


def _rm(arguments: argparse.Namespace) -> int:
    from .manage import rm

    print(f"deleted: {rm(Store.open(arguments.store), arguments.hashes)}")
    return 0


def _gc(arguments: argparse.Namespace) -> int:
    from .manage import gc

    print(f"deleted: {gc(Store.open(arguments.store), other_versions=arguments.other_versions)}")
    return 0


def _merge(arguments: argparse.Namespace) -> int:
    from .manage import merge

    other = Store.open(arguments.other)
    entries, keys = merge(Store.create(arguments.store), other)
    print(f"{entries} entries and {keys} results are new")
    return 0


def _export(arguments: argparse.Namespace) -> int:
    from .manage import export

    made = export(Store.open(arguments.store), arguments.folder, events=arguments.events)
    print(f"{len(made)} files in {arguments.folder}")
    return 0


def _run(arguments: argparse.Namespace) -> int:
    study = Study.from_toml(arguments.study)
    if arguments.output:
        # Not after hours of work.
        _check_output(Path(arguments.output))
    store = Store.open(arguments.store)
    if arguments.scheduler is not None:
        executor: Executor = Dask(arguments.scheduler)
    elif arguments.dask is not None:
        executor = Dask(workers=arguments.dask)
    elif arguments.ray is not None:
        executor = Ray(None if arguments.ray == "local" else arguments.ray)
    else:
        executor = InProcess() if arguments.workers == 0 else Processes(arguments.workers)
    with executor:
        results = run(study, store=store, executor=executor, lease=arguments.lease, progress=_bar("keys", arguments.quiet))
    if arguments.output:
        _write(results, arguments.output)
    keys = "1 key is" if results.num_rows == 1 else f"{results.num_rows} keys are"
    print(f"{keys} finished in {os.fspath(arguments.store)}")
    return 0


def _check_output(path: Path) -> None:
    endings = ".csv, .json or .parquet"
    if path.suffix not in (".csv", ".json", ".parquet"):
        raise NearpageError(f"{path}: unknown ending, expected {endings}", str(path), endings)
    if not path.parent.is_dir():
        expected = "a folder that is there"
        raise NearpageError(f"{path}: there is no folder {path.parent}, expected {expected}", str(path), expected)


def _write(results: Any, path: str) -> None:
    ending = Path(path).suffix
    if ending == ".parquet":
        import pyarrow.parquet

        pyarrow.parquet.write_table(results, path)
    elif ending == ".csv":
        import pyarrow.csv

        pyarrow.csv.write_csv(results, path)
    else:
        Path(path).write_text(json.dumps(results.to_pylist(), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
