"""``nearpage-fleet report``: the page of a study. It says first what is known, then where it gets worse, then all there is.

The page is one file of HTML, which can be read without its script; the same results give the same bytes.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shlex
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Union

from .. import __version__, _nearpage
from ..errors import ArgumentError
from . import page, pareto
from .answers import GATE, GROUPS, QUESTIONS, Answer, Comparison, Unit, compare, room
from .figures import FIGURES, MAIN, Figure
from .page import Cell, number
from .pairs import Row, Variant, rows_of
from .store import USUAL
from .units import KINDS
from .words import many

#: Rows of the table of regressions.
WORST = 20
#: Rows of other tables, dots of a line, and machines: a page stays one that can be read.
_ROWS, _DOTS, _MACHINES = 1000, 60, 50

Cells = list[list[Union[Cell, str]]]


def render(
    results: object,
    *,
    baseline: Variant | str | None = None,
    figures: Iterable[str] = MAIN,
    primary: str | None = None,
    by: Sequence[str] = (),
    unit: str | None = None,
    weights: Mapping[str, float] | None = None,
    gate: float = GATE,
    questions: int = QUESTIONS,
    confidence: float = 0.95,
    seed: int = 0,
    title: str = "A study",
    command: str | None = None,
    store: str | None = None,
) -> str:
    """The page of some results, as HTML. ``command`` is what made it, ``store`` where its recordings are; they are for the reader."""
    rows = rows_of(results)
    figures = list(dict.fromkeys([*([primary] if primary else []), *figures]))
    asked: dict[str, Any] = {"baseline": baseline, "figures": figures, "primary": primary, "gate": gate, "questions": questions, "confidence": confidence, "seed": seed}
    whole = compare(rows, unit=unit, weights=weights, **asked)
    parts = [f"<h1>{page.escaped(title)}</h1>", _verdict(whole), _summary(rows, whole), *_answers("Answers", whole)]
    parts += [_plots(whole), *_regressions(whole, store), *_front(whole)]
    if by:
        parts += _answers(f"By {' and '.join(by)}", compare(rows, by=by, unit=unit, weights=weights, **asked))
    parts += [*_loads(whole), *_of_what(rows), _GLOSSARY, *_origin(rows, command)]
    return page.document(title, parts)


#: Variants whose verdict is a sentence.
_SENTENCES = 12
_VERDICTS = {
    "better": "is better", "worse": "is worse", "perhaps better": "is perhaps better: enough if it was the only question, not for one of several",
    "perhaps worse": "is perhaps worse: enough if it was the only question, not for one of several", "the same": "is the same in every recording",
    "within the model's error": "differs by less than the model's error or that of the start: nothing can be told",
    "no difference can be told": "cannot be told from chance", "too few": "cannot be told: there are too few",
}  # fmt: skip


def _verdict(compared: Comparison) -> str:
    """The answer, its interval and the model's error, first of all."""
    order = {"worse": 0, "better": 1, "perhaps worse": 2, "perhaps better": 3}
    answers = sorted(compared.of_primary(), key=lambda of: (order.get(of.verdict, 4), -abs(of.ratio - 1), str(of.variant)))
    label = FIGURES[compared.primary].label
    lines = [
        f"<p><b>{page.escaped(of.variant)}</b>: {page.escaped(label)} <b>x{of.ratio:.3f}</b> ({room(of)}) over {many(of.loads, compared.unit)}. It "
        f"<b>{_VERDICTS[of.verdict]}</b>. {page.escaped(of.beside().capitalize())}.</p>"
        for of in answers[:_SENTENCES]
    ]
    if len(answers) > _SENTENCES:
        lines.append(f"<p>{len(answers) - _SENTENCES} more are in the table.</p>")
    return "".join(lines)


_GLOSSARY = """<h2>Words</h2><p><b>Ratio</b>: of the variant's figure to the baseline's on the same recording, (n + 32) / (n + 32); over units the
geometric mean. <b>Interval</b>: where that mean lies for fleets like this one, with room for the model's error and for the start. <b>Unit</b>: what counts
as one, a host where recordings say theirs, else a load. <b>Typical</b>: the pseudo-median of units; half of all pairs of them are better. <b>Worse</b>:
units made worse by more than 5 %, of all. <b>Model</b>: how far the replay under the recorded kernel's own rules is from what that kernel
logged of this figure, as a factor; - where kernels log nothing of it, and the error is unknown. <b>Short</b>: units whose recordings are shorter than the
effect of their start. <b>p</b>: how probable this is by chance anywhere among all questions of the table. <b>Hold</b>: a zone's lock is taken, or another
CPU's pagesets. <b>Kept</b>: pages in the pagesets of CPUs. <b>Remote</b>: pages from another node than the CPU's. <b>Whole</b>: aligned ranges of 512 free
pages.</p>"""


def _of_what(rows: Sequence[Row]) -> list[str]:
    """Machines and settings in words."""
    machines = Counter(str(row["machine"]) for row in {row["entry"]: row for row in rows}.values())
    known = {name: (meaning, values) for name, meaning, values in _nearpage.settings()}
    names = sorted({name for row in rows for name in json.loads(row["settings"] or "{}")})
    table: Cells = [[machine, number(count)] for machine, count in sorted(machines.items(), key=lambda of: (-of[1], of[0]))[:_MACHINES]]
    parts = ["<h2>Machines and settings</h2>", page.table(["machine", "recordings"], table)]
    if len(machines) > _MACHINES:
        parts.append(f"<p>{len(machines) - _MACHINES} more machines are not shown.</p>")
    meanings: Cells = [[Cell(name, is_code=True), *known.get(name, ("a setting that this version does not have", ""))] for name in names]
    return [*parts, *([page.table(["setting", "what it is", "values"], meanings)] if meanings else [])]


def _summary(rows: Sequence[Row], compared: Comparison) -> str:
    entries, loads, machines = (len({row[name] for row in rows}) for name in ("entry", "load", "machine"))
    told = compared.told()
    better, worse = ([of for of in told if of.verdict == kind] for kind in ("better", "worse"))
    said = [
        f"{many(len({of.variant for of in compared.answers}), 'variant')} against <b>{page.escaped(compared.baseline)}</b> on "
        f"{many(entries, 'recording')} of {many(loads, 'load')} from {many(machines, 'machine')}."
    ]
    if not compared.answers:
        said.append("There is nothing to compare: no recording has results of the baseline and of another variant.")
    elif not told:
        said.append(f"No difference can be told from chance between {compared.unit}s.")
    else:
        said.append(f"Of {many(len(compared.answers), 'answer')}, {len(better)} are better and {len(worse)} worse; of the others no difference can be told.")
    percent = f"{100 * compared.confidence:g} %"
    said.append(
        f"Each interval holds in {percent} of fleets like this one. A verdict hangs on its own question alone, at a level that leaves room for "
        f"{compared.questions}. A replay repeats what was recorded: loads do not react to another allocator."
    )
    # That there is nothing is said above.
    said += [page.escaped(line) for line in compared.said() if compared.answers or not line.startswith("There is nothing")]
    return "".join(f"<p>{line}</p>" for line in said)


_KINDS = {"better": "good", "worse": "bad", "too few": "few", "within the model's error": "few"}


def _answers(title: str, compared: Comparison) -> list[str]:
    if not compared.answers:
        return []
    groups = list(compared.answers[0].group)
    order = {"worse": 0, "better": 1}
    answers = sorted(
        compared.answers, key=lambda of: (of.figure.name != compared.primary, order.get(of.verdict, 2), of.figure.name, -abs(of.ratio - 1))
    )
    left_out = len(answers) - _ROWS
    answers = answers[:_ROWS]
    rows: Cells = [
        [
            Cell(str(of.variant), is_code=True), *of.group.values(), of.figure.label, Cell(of.verdict, f"line {_KINDS.get(of.verdict, '')}"),
            number(of.ratio), Cell(room(of), "number"), number(of.typical), number(of.loads), Cell(f"{of.worse}", "number"),
            Cell("-" if of.model_error is None else f"x{of.model_error:.2f}", "number"), number(of.short), _chance(of),
        ]
        for of in answers
    ]  # fmt: skip
    head = ["variant", *groups, "figure", "verdict", "ratio", "interval", "typical", f"{compared.unit}s", "worse", "model", "short", "p"]
    more = [f"<p>{left_out} more answers are not shown; <code>--results</code> and pandas have them.</p>"] if left_out > 0 else []
    return [f"<h2>{page.escaped(title)}</h2>", page.table(head, rows), *more]


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
        page.Range(_label(of.variant, answers), of.ratio, of.low, of.high, of.verdict if of.verdict in ("better", "worse") else "same", _dots(of))
        for of in answers if of in chosen
    ]  # fmt: skip
    better = "less is better" if figure.is_less_better else "more is better"
    left_out = f"; {len(answers) - len(lines)} more are in the table" if len(answers) > len(lines) else ""
    return page.figure(figure.label, f"ratio to the baseline, {better}; a dot is a load, a square their mean, a line its interval{left_out}", page.ranges(lines))


def _dots(answer: Answer) -> tuple[float, ...]:
    """The units of an answer; of many so many that their spread is seen, the ends among them."""
    ratios = sorted(unit.ratio for unit in answer.units)
    if len(ratios) <= _DOTS:
        return tuple(ratios)
    return tuple(ratios[at * (len(ratios) - 1) // (_DOTS - 1)] for at in range(_DOTS))


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
    head = [compared.unit, "machine", "figure", "variant", "baseline", "variant's", "ratio", "to repeat it"]
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
    units = [(answer, unit) for answer in compared.answers for unit in answer.units]
    # Of many those that differ most.
    shown = sorted(units, key=lambda of: (-abs(math.log(of[1].ratio)), of[1].name, str(of[0].variant), of[0].figure.name))[:_ROWS]
    rows: Cells = [
        [unit.name, unit.machine, Cell(str(answer.variant), is_code=True), answer.figure.label, number(unit.baseline), number(unit.value), _ratio(answer, unit), number(unit.pairs)]
        for answer, unit in shown
    ]  # fmt: skip
    rows.sort(key=lambda cells: [cell.text if isinstance(cell, Cell) else cell for cell in cells[:4]])
    head = [compared.unit, "machine", "variant", "figure", "baseline", "variant's", "ratio", "pairs"]
    which = f"All {compared.unit}s" if len(units) <= _ROWS else f"The {_ROWS} of {len(units)} that differ most"
    return [f"<h2>{which}</h2>", f"<details><summary>{many(len(rows), 'row')}</summary>{page.table(head, rows)}</details>"]


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
    parser.add_argument("--primary", default=None, metavar="NAME", help="the figure that the verdict is about (default: that of the study, or the first)")
    parser.add_argument("--unit", default=None, choices=KINDS, help="what counts as one (default: host where all recordings say theirs, else load)")
    parser.add_argument("--weights", default=None, metavar="FILE", help="JSON with a number for each unit, such as its hosts or its traffic")
    parser.add_argument("--gate", type=float, default=GATE, metavar="PERCENT", help="leave out recordings that are predicted less exactly (default: %(default)g)")
    parser.add_argument("--questions", type=int, default=None, metavar="N", help=f"for how many questions verdicts leave room (default: that of the study, or {QUESTIONS})")
    parser.add_argument("--confidence", type=float, default=0.95, help="how often an interval holds (default: 0.95)")
    parser.add_argument("--seed", type=int, default=0, help="of the signs that p is drawn with; it changes no verdict (default: 0)")
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

    from .study import Study

    names = [name.strip() for name in args.figures.split(",")]
    study = Study.from_toml(args.study) if args.study else Study()
    title = args.title or (Path(args.study).stem if args.study else "A study")
    html = render(
        read_results(args), baseline=args.baseline, figures=names, primary=args.primary or study.primary, by=args.by, unit=args.unit,
        weights=_weights(args.weights), gate=args.gate, questions=args.questions or study.questions, confidence=args.confidence, seed=args.seed, title=title,
        command=_command(args), store=None if args.results else Store.place(args.store),
    )  # fmt: skip
    if args.output == "-":
        sys.stdout.write(html)
    else:
        write(Path(args.output), html)
    return 0


def _weights(path: str | None) -> dict[str, float] | None:
    if path is None:
        return None
    accepted = "a JSON object with a number for each unit"
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ArgumentError(f"{path}: {error}, expected {accepted}", path, accepted) from error
    if not isinstance(found, dict):
        raise ArgumentError(f"{path}: {found!r:.40}, expected {accepted}", path, accepted)
    return found


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
    for name in ("results" if args.results else "store", "study", "baseline", "title", "primary", "unit", "weights", "questions"):
        value = getattr(args, name)
        words += [f"--{name}", str(value)] if value is not None else []
    words += [word for name in args.by for word in ("--by", name)]
    defaults = {"figures": ",".join(MAIN), "gate": GATE, "confidence": 0.95, "seed": 0, "output": "report.html"}
    words += [word for name, own in defaults.items() if getattr(args, name) != own for word in (f"--{name}", str(getattr(args, name)))]
    return shlex.join(words)


__all__ = ["FIGURES", "add_arguments", "add_results", "command", "read_results", "render"]
