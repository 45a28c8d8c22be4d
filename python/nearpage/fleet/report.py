"""``nearpage-fleet report``: the page of a study. It says first what is known, then where it gets worse, then all there is.

The page is one file of HTML without scripts; the same results give the same bytes.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Union

from .. import __version__
from ..errors import ArgumentError
from . import page, pareto
from .answers import GROUPS, Answer, Comparison, Unit, compare, room
from .figures import FIGURES, MAIN, Figure
from .page import Cell, number
from .pairs import Row, Variant, rows_of
from .store import USUAL

#: Rows of the table of regressions.
WORST = 20

Cells = list[list[Union[Cell, str]]]


def render(
    results: object,
    *,
    baseline: Variant | str | None = None,
    figures: Iterable[str] = MAIN,
    by: Sequence[str] = (),
    confidence: float = 0.95,
    seed: int = 0,
    title: str = "A study",
    command: str | None = None,
    store: str | None = None,
) -> str:
    """The page of some results, as HTML. ``command`` is what made it, ``store`` where its recordings are; they are for the reader."""
    rows = rows_of(results)
    whole = compare(rows, baseline=baseline, figures=figures, confidence=confidence, seed=seed)
    parts = [f"<h1>{page.escaped(title)}</h1>", _summary(rows, whole)]
    parts += [_plots(whole), *_regressions(whole, store), *_answers("Answers", whole), *_front(whole)]
    if by:
        grouped = compare(rows, baseline=baseline, figures=figures, by=by, confidence=confidence, seed=seed)
        parts += _answers(f"By {' and '.join(by)}", grouped)
    parts += [*_loads(whole), *_origin(rows, command)]
    return page.document(title, parts)


def _summary(rows: Sequence[Row], compared: Comparison) -> str:
    entries, loads, machines = (len({row[name] for row in rows}) for name in ("entry", "load", "machine"))
    told = compared.told()
    better, worse = ([of for of in told if of.verdict == kind] for kind in ("better", "worse"))
    said = [
        f"{_count(len({of.variant for of in compared.answers}), 'variant')} against <b>{page.escaped(compared.baseline)}</b> on "
        f"{_count(entries, 'recording')} of {_count(loads, 'load')} from {_count(machines, 'machine')}."
    ]
    if not compared.answers:
        said.append("There is nothing to compare: no recording has results of the baseline and of another variant.")
    elif not told:
        said.append("No difference can be told from chance between loads.")
    else:
        said.append(f"Of {_count(len(compared.answers), 'answer')}, {len(better)} are better and {len(worse)} worse; of the others no difference can be told.")
    percent = f"{100 * compared.confidence:g} %"
    said.append(
        f"Intervals hold together, all of a table at once, in {percent} of studies of loads like these. Ratios are to the baseline, (n + 32) / (n + 32), "
        "their mean over loads is geometric. A replay repeats what was recorded: loads do not react to another allocator."
    )
    if compared.unpaired:
        said.append(f"{_count(compared.unpaired, 'row')} without a baseline of the same recording and seed are in no answer.")
    return "".join(f"<p>{line}</p>" for line in said)


def _count(count: int, name: str) -> str:
    return f"{count} {name}" if count == 1 else f"{count} {name}s"


_KINDS = {"better": "good", "worse": "bad", "too few": "few"}


def _answers(title: str, compared: Comparison) -> list[str]:
    if not compared.answers:
        return []
    groups = list(compared.answers[0].group)
    order = {"worse": 0, "better": 1}
    answers = sorted(compared.answers, key=lambda of: (order.get(of.verdict, 2), of.figure.name, -abs(of.ratio - 1)))
    rows: Cells = [
        [
            Cell(str(of.variant), is_code=True), *of.group.values(), of.figure.label, Cell(of.verdict, f"line {_KINDS.get(of.verdict, '')}"),
            number(of.ratio), Cell(room(of), "number"), number(of.loads), _chance(of),
        ]
        for of in answers
    ]  # fmt: skip
    head = ["variant", *groups, "figure", "verdict", "ratio", "interval", "loads" if compared.unit == "load" else "recordings", "p"]
    return [f"<h2>{page.escaped(title)}</h2>", page.table(head, rows)]


def _chance(answer: Answer) -> Cell:
    return Cell("" if answer.p is None else f"{answer.p:.2g}", "number")


def _plots(compared: Comparison) -> str:
    figures = list(dict.fromkeys(of.figure for of in compared.answers))
    drawn = [_plot(figure, [of for of in compared.answers if of.figure == figure]) for figure in figures]
    return f'<div class="plots">{"".join(drawn)}</div>'


#: Lines of a plot: beyond them, those that say something come first.
_LINES = 40


def _label(variant: Variant, among: Sequence[Answer]) -> str:
    """A variant in a plot: without the rules that all of them have."""
    if len({of.variant.model for of in among}) > 1 or str(variant) == variant.model:
        return str(variant)
    return str(variant).removeprefix(f"{variant.model} ")


def _plot(figure: Figure, answers: Sequence[Answer]) -> str:
    chosen = sorted(answers, key=lambda of: (of.verdict not in ("better", "worse"), -abs(of.ratio - 1)))[:_LINES]
    lines = [
        page.Range(_label(of.variant, answers), of.ratio, of.low, of.high, of.verdict if of.verdict in ("better", "worse") else "same", tuple(unit.ratio for unit in of.units))
        for of in answers if of in chosen
    ]  # fmt: skip
    better = "less is better" if figure.is_less_better else "more is better"
    left_out = f"; {len(answers) - len(lines)} more are in the table" if len(answers) > len(lines) else ""
    return page.figure(figure.label, f"ratio to the baseline, {better}; a dot is a load, a square their mean, a line its interval{left_out}", page.ranges(lines))


def _front(compared: Comparison) -> list[str]:
    front = pareto.of_comparison(compared)
    if len(front.candidates) < 2 or len(front.figures) < 2:
        return []
    best = {candidate.variant for candidate in front.best()}
    x, y = (0, next((at for at, figure in enumerate(front.figures) if figure.name == "kept_pages_mean"), 1))
    plane = set(pareto.front((of.variant, (of.ratios[x], of.ratios[y])) for of in front.candidates))
    points = [page.Spot(_label(of.variant, compared.answers), of.ratios[x], of.ratios[y], of.variant in plane) for of in front.candidates]
    names = [figure.label + ("" if figure.is_less_better else ", inverse") for figure in front.figures]
    rows: Cells = [
        [
            Cell(str(of.variant), is_code=True), "best in something" if of.variant in best else "beaten" if of.is_beaten_surely else "beaten, or as good",
            *(number(ratio) for ratio in of.ratios),
        ]
        for of in sorted(front.candidates, key=lambda of: (not of.is_on_front, of.ratios))
    ]  # fmt: skip
    intro = (
        "A variant is best in something if no other is as good in all figures and better in one. One that is beaten may be as good: the "
        "intervals leave room for it, unless it says otherwise."
    )
    drawing = page.figure(f"{names[x]} and {names[y]}", "ratios to the baseline; less is better in both", page.spots(points, names[x], names[y]))
    return ["<h2>Which to choose from</h2>", f"<p>{intro}</p>", f'<div class="plots">{drawing}</div>', page.table(["variant", "", *names], rows)]


def _regressions(compared: Comparison, store: str | None) -> list[str]:
    worst = compared.worst(WORST)
    if not worst:
        return ["<h2>Worst regressions</h2>", "<p>No load gets worse under any variant.</p>"]
    rows: Cells = [
        [
            unit.name, unit.machine, answer.figure.label, Cell(str(answer.variant), is_code=True), number(unit.baseline), number(unit.value),
            Cell(f"x{unit.ratio:.3f}", "number bad"), Cell(repeat(answer, unit, store), is_code=True, summary="command"),
        ]
        for answer, unit in worst
    ]  # fmt: skip
    head = ["load", "machine", "figure", "variant", "baseline", "variant's", "ratio", "to repeat it"]
    return ["<h2>Worst regressions</h2>", page.table(head, rows)]


def repeat(answer: Answer, unit: Unit, store: str | None) -> str:
    """The command that shows the figures of a load, and computes them if the store does not have them any more."""
    settings = json.loads(answer.variant.settings or "{}")
    toml = ", ".join(f'"{key}" = {json.dumps(value)}' for key, value in settings.items())
    lines = [f"entries = {json.dumps([entry[:16] for entry in unit.entries])}", f"models = [{json.dumps(answer.variant.model)}]", f"settings = [{{{toml}}}]"]
    if answer.variant.what_if:
        machine = json.loads(answer.variant.what_if)
        inline = ", ".join(f"{key} = {json.dumps(value)}" for key, value in machine.items()) if isinstance(machine, dict) else ""
        lines.append(f"machines = [{{{inline}}}]" if inline else f"machines = [{json.dumps(machine)}]")
    where = f" --store {shlex.quote(store)}" if store else ""
    return f"printf '%s\\n' {' '.join(map(shlex.quote, lines))} > one.toml; nearpage-fleet run one.toml{where} --output one.csv; cat one.csv"


def _loads(compared: Comparison) -> list[str]:
    rows: Cells = [
        [unit.name, unit.machine, Cell(str(answer.variant), is_code=True), answer.figure.label, number(unit.baseline), number(unit.value), _ratio(answer, unit), number(unit.pairs)]
        for answer in compared.answers for unit in answer.units
    ]  # fmt: skip
    rows.sort(key=lambda cells: [cell.text if isinstance(cell, Cell) else cell for cell in cells[:4]])
    head = ["load", "machine", "variant", "figure", "baseline", "variant's", "ratio", "pairs"]
    return ["<h2>All loads</h2>", f"<details><summary>{_count(len(rows), 'row')}</summary>{page.table(head, rows)}</details>"]


def _ratio(answer: Answer, unit: Unit) -> Cell:
    badness = answer.badness(unit)
    kind = "bad" if badness > 0.05 else "good" if badness < -0.05 else ""
    return Cell(f"x{unit.ratio:.3f}", f"number {kind}")


def _origin(rows: Sequence[Row], command: str | None) -> list[str]:
    made = sorted({f"nearpage {row.get('version')}, rules {row.get('model_version')}" for row in rows if row.get("version")})
    parts = ["<h2>Where this is from</h2>"]
    if made:
        parts.append(f"<p>Results of {page.escaped('; '.join(made))}; the page by nearpage {__version__}.</p>")
    if command:
        parts.append(f"<pre>{page.escaped(command)}</pre>")
    return parts


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``nearpage-fleet report``."""
    parser.description = "Write the page of a study: what is better, worse, or cannot be told, the worst regressions, all loads."
    add_results(parser)
    parser.add_argument("-o", "--output", default="report.html", metavar="FILE", help="where the page goes; - is standard output (default: report.html)")
    parser.add_argument("--by", action="append", default=[], choices=[name for name in GROUPS if "version" not in name], help="also answer for each of these; may be given several times")
    parser.add_argument("--figures", default=",".join(MAIN), metavar="NAME,…", help="figures to compare by (default: %(default)s)")
    parser.add_argument("--confidence", type=float, default=0.95, help="how often all intervals hold (default: 0.95)")
    parser.add_argument("--seed", type=int, default=0, help="of the resamples (default: 0)")
    parser.add_argument("--title", default=None, help="heading of the page")


def add_results(parser: argparse.ArgumentParser) -> None:
    """Where results come from: a store with a study, or a file."""
    parser.add_argument("--store", default=USUAL, metavar="URL", help="the store: a folder, s3://… or gs://… (default: %(default)s)")
    parser.add_argument("--study", default=None, metavar="STUDY.toml", help="the study, instead of all results of the store")
    parser.add_argument("--results", default=None, metavar="FILE", help="a file of results (Parquet, or JSON of rows), instead of a store")
    parser.add_argument("--baseline", default=None, metavar="MODEL", help="rules that others are compared with, with their own settings")


def read_results(args: argparse.Namespace) -> Any:
    """The results that arguments name."""
    if args.results:
        path = Path(args.results)
        try:
            if path.suffix == ".json":
                return json.loads(path.read_text(encoding="utf-8"))
            import pyarrow.parquet

            return pyarrow.parquet.read_table(path)
        except (OSError, ValueError, RecursionError, NotImplementedError) as error:
            raise ArgumentError(f"{path}: {error}, expected results in Parquet, or JSON of rows", str(path), "Parquet, or JSON of rows") from error
    from . import Store, Study

    store = Store.open(args.store)
    return store.results(Study.from_toml(args.study) if args.study else None)


def command(args: argparse.Namespace) -> int:
    """``nearpage-fleet report``: writes the page."""
    from . import Store

    names = [name.strip() for name in args.figures.split(",")]
    title = args.title or (Path(args.study).stem if args.study else "A study")
    html = render(
        read_results(args), baseline=args.baseline, figures=names, by=args.by, confidence=args.confidence, seed=args.seed, title=title,
        command=_command(args), store=None if args.results else Store.place(args.store),
    )  # fmt: skip
    if args.output == "-":
        sys.stdout.write(html)
    else:
        write(Path(args.output), html)
    return 0


def write(path: Path, text: str) -> None:
    """Writes a file wholly or not at all."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise ArgumentError(f"{path}: {error.strerror}, expected a file that can be written", str(path), "a file that can be written") from error


def _command(args: argparse.Namespace) -> str:
    words = ["nearpage-fleet", "report"]
    for name in ("results" if args.results else "store", "study", "baseline", "title"):
        value = getattr(args, name)
        words += [f"--{name}", value] if value is not None else []
    words += [word for name in args.by for word in ("--by", name)]
    defaults = {"figures": ",".join(MAIN), "confidence": 0.95, "seed": 0, "output": "report.html"}
    words += [word for name, own in defaults.items() if getattr(args, name) != own for word in (f"--{name}", str(getattr(args, name)))]
    return shlex.join(words)


__all__ = ["FIGURES", "add_arguments", "add_results", "command", "read_results", "render"]
