"""``nearpage-fleet tune``: settings for an objective with limits, and whether they would do for loads that were not searched on.

The search is Optuna's (TPE, limits as its constraints); its trials are in a file that survives a kill, and the same question goes on
where it was. What a search finds is the best of many tries on these loads, and looks better than it is. So each fold of the loads is
left out of a search of its own, and what that one finds is measured on the fold: **held out**. A winner is named only if the limits
hold there, and if the held-out loads tell it from today's settings, too: by :mod:`nearpage.fleet.answers`, over the same units (hosts where
all recordings name theirs, else loads; twins add none), with the same room for the model's error and the start. Where today's settings
are beyond a limit themselves, there is nothing to be better than: then the limits alone must hold there.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import random
import sqlite3
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ..errors import ArgumentError, NearpageError
from .answers import GATE, Answer, Comparison, compare, is_below, left_out_of, left_out_said, room
from .measured import Bundles, Measure, Stored
from .objective import ACCEPTED, Limit, Objective
from .pairs import Row, Variant, shown
from .space import Settings, Space
from .units import Kind, kind_of, namer
from .words import many

Progress = Callable[[int, int], object]
Rows = Mapping[str, Row]


@dataclass(frozen=True)
class Tried:
    """Settings that were tried on some entries."""

    settings: Settings
    #: The mean over units of the logarithm of the ratio to today's; less is better.
    cost: float
    holds_limits: bool


@dataclass(frozen=True)
class Fold:
    """Units that were left out of a search, and what it found for them."""

    held_out: tuple[str, ...]
    settings: Settings
    #: Ratios to today's: on the units of the search, and on those held out.
    searched: float
    held: float


@dataclass(frozen=True)
class HeldLimit:
    """A limit on units that were held out, of all folds together."""

    limit: str
    #: Of today's, the mean ratio to it; else the most (or the least) of a recording.
    value: float
    verdict: Literal["holds", "does not hold", "cannot be told"]


@dataclass(frozen=True)
class Tuned:
    """What a search came to."""

    objective: Objective
    #: What was searched on and held out, and its names.
    unit: Kind
    loads: tuple[str, ...]
    #: The fidelity in percent below which recordings are left out, and these: their loads, and their fidelity.
    gate: float
    left_out: tuple[tuple[str, float], ...]
    #: Whether today's settings hold the limits.
    is_today_within: bool
    #: The best on all loads that holds the limits; ``{}`` are today's, ``None`` if nothing that was tried holds them.
    best: Settings | None
    #: Its ratio to today's on the loads that it was found on.
    searched: float
    #: What the procedure comes to on held-out units, against today's settings.
    answer: Answer
    folds: tuple[Fold, ...]
    limits: tuple[HeldLimit, ...]
    #: Settings that hold the limits and that cannot be told from the best, the simplest first.
    as_good: tuple[Settings, ...]
    #: The winner, if one may be named.
    winner: Settings | None
    #: Why there is one or none.
    reason: str

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        names = ("unit", "loads", "gate", "left_out", "is_today_within", "best", "searched", "as_good", "winner", "reason")
        of = self.answer
        held = {"held": of.ratio, "held_low": of.low, "held_high": of.high, "held_verdict": of.verdict, "model_error": of.model_error}
        parts = {name: [vars(part) for part in getattr(self, name)] for name in ("folds", "limits")}
        return {"objective": str(self.objective)} | {name: getattr(self, name) for name in names} | held | parts

    def __str__(self) -> str:
        label, of = self.objective.of_figure.label, self.answer
        lines = [
            f"objective  {self.objective}",
            f"searched   {many(len(self.loads), self.unit)}",
            *([] if self.is_today_within else ["today      beyond a limit"]),
            f"best       {'none within the limits' if self.best is None else words(self.best)}",
            f"           {label} x{self.searched:.3f} on the {self.unit}s that it was found on",
            f"held out   {label} x{of.ratio:.3f} ({room(of)}) on {self.unit}s that the search had not seen: {of.verdict}",
            f"           {of.beside()}",
            *(
                f"  fold {at}   x{fold.searched:.3f} searched, x{fold.held:.3f} held out: {words(fold.settings)}"
                for at, fold in enumerate(self.folds, 1)
            ),
            *(f"  limit    {of.limit}: {of.verdict} ({of.value:,.3f} there)" for of in self.limits),
            *([f"as good    {len(self.as_good)} that cannot be told from it, such as {words(self.as_good[0])}"] if self.as_good else []),
            f"winner     {words(self.winner) if self.winner is not None else 'none'}: {self.reason}",
            *left_out_said(self.left_out, self.gate),
        ]
        return "\n".join(lines)


def words(settings: Settings) -> str:
    """Settings as the command line takes them."""
    return " ".join(f"{key}={shown(value)}" for key, value in settings.items()) or "today's settings"


def tune(
    measure: Measure,
    objective: Objective,
    *,
    folder: Path,
    space: Space | None = None,
    trials: int = 50,
    folds: int = 4,
    gate: float = GATE,
    confidence: float = 0.95,
    seed: int = 0,
    progress: Progress | None = None,
) -> Tuned:
    """Searches, and says what would do for other loads.

    ``folder`` keeps the trials; the same call goes on there. Recordings of a fidelity below ``gate`` percent are left out. ``progress`` is
    called with trials done and to do, of all searches.

    Raises :class:`nearpage.NearpageError`.
    """
    if trials < 1 or folds < 2:
        raise ArgumentError(f"trials={trials}, folds={folds}, expected 1 trial and 2 folds or more", "folds", "1 trial and 2 folds or more")
    all_rows = measure.rows({}, sorted(measure.entries()))
    left_out = left_out_of(all_rows.values(), gate)
    own_rows = {entry: row for entry, row in all_rows.items() if not is_below(row, gate)}
    kind = kind_of(own_rows.values(), None, ())
    name_of = namer(kind, own_rows.values())
    units = {entry: name_of(row) for entry, row in own_rows.items()}
    names = sorted(set(units.values()))
    if len(names) < folds:
        accepted = f"a {kind} or more for each"
        left = f" ({' '.join(left_out_said(left_out, gate))})" if left_out else ""
        raise ArgumentError(f"{many(len(names), kind)} in {folds} folds{left}, expected {accepted}", "folds", accepted)
    task = _Task(measure, objective, space or Space.parse([]), Path(folder), trials, seed, kind, _Told(progress, trials * (folds + 1)))
    is_within = objective.holds(own_rows, own_rows, kind)
    of_folds: list[Fold] = []
    held_rows: dict[str, Row] = {}
    for part in parted(names, folds, seed):
        inside = [entry for entry, unit in units.items() if unit not in part]
        outside = [entry for entry, unit in units.items() if unit in part]
        fold, rows = _fold(task, own_rows, is_within, part, inside, outside)
        of_folds.append(fold)
        held_rows |= rows
    tried = task.search(list(units), own_rows)
    best = best_of(tried, is_within)
    [answer] = _against({"held out": held_rows}, own_rows, objective.figure, kind, confidence).answers
    limits = tuple(_held_limit(limit, held_rows, own_rows, kind, confidence) for limit in objective.limits)
    others = _as_good(task, tried, best, own_rows, list(units), confidence) if best is not None and best.settings else ()
    as_good = tuple(settings for settings in others if settings or is_within)
    winner, reason = _verdict(best, is_within, answer, limits, as_good)
    return Tuned(
        objective, kind, tuple(names), gate, left_out, is_within, best.settings if best else None, objective.ratio(best.cost) if best else 1.0, answer,
        tuple(of_folds), limits, as_good, winner, reason,
    )  # fmt: skip


def _against(variants: Mapping[str, Rows], base: Rows, figure: str, kind: Kind, confidence: float) -> Comparison:
    """Compares rows of some entries with others of the same entries, as one question. Each entry may have settings of its own."""

    def of(name: str, rows: Rows) -> list[dict[str, Any]]:
        return [{**row, "entry": entry, "model": name, "settings": "{}", "what_if": "", "seed": 0} for entry, row in rows.items()]

    rows = of("base", base) + [row for name, own in variants.items() for row in of(name, own)]
    return compare(rows, baseline=Variant("base"), figures=[figure], unit=kind, gate=0, questions=1, confidence=confidence)


def parted(names: Sequence[str], folds: int, seed: int) -> list[set[str]]:
    """Units in parts of about the same size, shuffled by a seed."""
    shuffled = sorted(names)
    random.Random(seed).shuffle(shuffled)
    return [set(shuffled[at::folds]) for at in range(folds)]


def best_of(tried: Iterable[Tried], is_today_within: bool) -> Tried | None:
    """The best that holds the limits; of equal ones that with the fewest settings. Today's, if they hold the limits and none is better."""
    own = Tried({}, 0.0, True) if is_today_within else None
    within = [of for of in tried if of.holds_limits and (own is None or of.cost < 0)]
    return min(within, key=lambda of: (of.cost, len(of.settings), words(of.settings)), default=own)


def _fold(task: _Task, own: Rows, is_today_within: bool, part: set[str], inside: list[str], outside: list[str]) -> tuple[Fold, Rows]:
    best = best_of(task.search(inside, own), is_today_within) or Tried({}, 0.0, False)
    rows = task.measure.rows(best.settings, outside)
    ratio = task.objective.ratio
    return Fold(tuple(sorted(part)), best.settings, ratio(best.cost), ratio(task.objective.cost(rows, own, task.kind))), rows


def _held_limit(limit: Limit, rows: Rows, own: Rows, kind: Kind, confidence: float) -> HeldLimit:
    """A limit of today's is about a mean: that cannot be told to hold where its interval reaches beyond it, and a search goes to where
    it just holds. It does not hold where all of the interval is beyond."""
    if not limit.is_of_today:
        worst = max if limit.is_most else min
        value = worst(float(row[limit.figure]) for row in rows.values())
        return HeldLimit(str(limit), value, "holds" if limit.excess(rows, own, kind) <= 1e-9 else "does not hold")
    [answer] = _against({"held out": rows}, own, limit.figure, kind, confidence).answers
    verdict: Literal["holds", "does not hold", "cannot be told"] = "cannot be told"
    if answer.low is not None and answer.high is not None:
        inner, outer = (answer.low, answer.high) if limit.is_most else (answer.high, answer.low)
        sign = 1.0 if limit.is_most else -1.0
        verdict = "holds" if sign * (outer - limit.bound) <= 1e-9 else "does not hold" if sign * (inner - limit.bound) > 1e-9 else verdict
    return HeldLimit(str(limit), answer.ratio, verdict)


def _as_good(task: _Task, tried: Sequence[Tried], best: Tried, own: Rows, entries: list[str], confidence: float) -> tuple[Settings, ...]:
    """Those whose difference to the best cannot be told, looking at all at once; today's settings among them."""
    others = {words(of.settings): of.settings for of in tried if of.holds_limits and of.settings != best.settings} | {words({}): {}}
    rows = {name: task.measure.rows(settings, entries) for name, settings in others.items()}
    compared = _against(rows, task.measure.rows(best.settings, entries), task.objective.figure, task.kind, confidence)
    told = {of.variant.model for of in compared.answers if of.verdict == "worse" and of.p is not None and of.p <= 1.0 - confidence}
    return tuple(sorted((settings for name, settings in others.items() if name not in told), key=lambda of: (len(of), words(of))))


def _verdict(
    best: Tried | None, is_today_within: bool, held: Answer, limits: Sequence[HeldLimit], as_good: Sequence[Settings]
) -> tuple[Settings | None, str]:
    if best is None:
        return None, "nothing that was tried holds the limits on all loads"
    if not best.settings:
        return None, "nothing that was tried is better than today's settings and holds the limits"
    if held.verdict == "too few":
        return None, "there are too few loads to tell what would do for others"
    broken = [of.limit for of in limits if of.verdict == "does not hold"]
    if broken:
        return None, f"on loads that the search had not seen a limit does not hold: {'; '.join(broken)}"
    if is_today_within and held.verdict == "within the model's error":
        return None, "on loads that the search had not seen the difference to today's settings is within the model's error"
    if is_today_within and held.verdict != "better":
        return None, "on loads that the search had not seen no difference to today's settings can be told"
    if {} in as_good:
        return None, "it cannot be told from today's settings"
    unsure = [of.limit for of in limits if of.verdict == "cannot be told"]
    within = f"whether {'; '.join(unsure)} holds there cannot be told" if unsure else "within the limits there"
    if not is_today_within:
        return best.settings, f"today's settings are beyond a limit; on loads that the search had not seen this is {within}"
    return best.settings, f"better on loads that the search had not seen; {within}"


class _Told:
    def __init__(self, progress: Progress | None, whole: int) -> None:
        self.progress, self.done, self.whole = progress, 0, whole

    def step(self, count: int = 1) -> None:
        self.done += count
        if self.progress is not None:
            self.progress(self.done, self.whole)


class _Database(sqlite3.Connection):
    """Trials in a file. A transaction that a kill cut off is rolled back, no lock is left behind, and no commit waits for the disk: when
    power fails the last trials may be lost, and no more."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.execute("PRAGMA journal_mode=WAL")
        self.execute("PRAGMA synchronous=NORMAL")


@dataclass(frozen=True)
class _Task:
    measure: Measure
    objective: Objective
    space: Space
    folder: Path
    trials: int
    seed: int
    kind: Kind
    told: _Told

    def search(self, entries: Sequence[str], own: Rows) -> list[Tried]:
        """Tries settings on some entries until there are enough trials. What was tried by a process that ended counts."""
        optuna = _optuna()
        self.folder.mkdir(parents=True, exist_ok=True)
        verbosity = optuna.logging.get_verbosity()
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        try:
            return self._search(optuna, entries, own)
        finally:
            optuna.logging.set_verbosity(verbosity)

    def _search(self, optuna: Any, entries: Sequence[str], own: Rows) -> list[Tried]:
        storage = optuna.storages.RDBStorage(f"sqlite:///{self.folder / 'trials.db'}", engine_kwargs={"connect_args": {"factory": _Database}})
        study = optuna.create_study(storage=storage, study_name=self._name(entries), load_if_exists=True)
        states = optuna.trial.TrialState
        for stale in study.get_trials(deepcopy=False, states=(states.RUNNING,)):
            # Of a process that ended. It is tried again: the sampler of a trial depends on those that are complete alone.
            study.tell(stale.number, state=states.FAIL)
        complete = len(study.get_trials(deepcopy=False, states=(states.COMPLETE,)))
        self.told.step(min(complete, self.trials))
        while complete < self.trials:
            # A seed of its own for each trial: what comes next does not depend on which process it comes in.
            study.sampler = optuna.samplers.TPESampler(seed=self.seed * 1_000_003 + complete)
            if complete == 0 and not study.get_trials(deepcopy=False, states=(states.WAITING,)):
                study.enqueue_trial(self.space.own())
            trial = study.ask()
            settings = self.space.suggest(trial)
            rows = self.measure.rows(settings, entries)
            trial.set_user_attr("settings", settings)
            for limit, excess in zip(self.objective.limits, self.objective.excesses(rows, own, self.kind)):
                trial.set_constraint(str(limit), excess)
            study.tell(trial, self.objective.cost(rows, own, self.kind))
            complete += 1
            self.told.step()
        done = study.get_trials(deepcopy=False, states=(states.COMPLETE,))[: self.trials]
        return [Tried(of.user_attrs["settings"], of.value, self.objective.holds(self._rows(of, entries), own, self.kind)) for of in done]

    def _rows(self, trial: Any, entries: Sequence[str]) -> Rows:
        return self.measure.rows(trial.user_attrs["settings"], entries)

    def _name(self, entries: Sequence[str]) -> str:
        """Another question is another study."""
        question = [self.measure.name(), str(self.objective), repr(self.space), self.kind, sorted(entries), self.seed]
        return hashlib.sha256(json.dumps(question).encode()).hexdigest()[:16]


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        accepted = "optuna 5 (pip install 'nearpage[tune]')"
        raise NearpageError(f"tuning needs {accepted}", "optuna", accepted) from error
    return optuna


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``nearpage-fleet tune``."""
    parser.description = "Search settings for an objective with limits, and say whether they would do for loads that were not searched on."
    parser.add_argument("bundles", nargs="*", metavar="BUNDLE", help="recordings: folders with meta.json, or tars of them; none are those of the store")
    parser.add_argument("--store", default="nearpage-store", metavar="URL", help="a folder, s3://… or gs://… (default: %(default)s)")
    parser.add_argument("--entries", action="append", default=None, metavar="NAME", help="loads or hashes of the store, * for any; may be given several times (default: all)")
    parser.add_argument("--model", default="linux-6.18", help="the rules whose settings are searched (default: %(default)s)")
    parser.add_argument("--fewest", default="holds", metavar="FIGURE", help="the figure to improve (default: %(default)s)")
    parser.add_argument("--limit", action="append", default=[], metavar="LIMIT", help=f"a limit: {ACCEPTED}; may be given several times")
    parser.add_argument("--over", action="append", default=[], metavar="KEY=VALUES", help="a setting to search: KEY=LEAST..MOST or KEY=A,B (default: the usual ones)")
    parser.add_argument("--trials", type=int, default=50, help="trials of each search (default: %(default)s)")
    parser.add_argument("--folds", type=int, default=4, help="parts that the loads are left out in (default: %(default)s)")
    parser.add_argument("--gate", type=float, default=GATE, help="leave out recordings with a lower fidelity, in percent (default: %(default)s)")
    parser.add_argument("--folder", default="tuning", help="what was tried is kept there, and goes on there (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the search and the folds (default: 0)")
    parser.add_argument("--json", action="store_true", help="print JSON instead")


def command(args: argparse.Namespace) -> int:
    """``nearpage-fleet tune``. The exit status is 0 with a winner, and 1 without one."""
    measure = _measure(args)
    tuned = tune(
        measure, Objective.of(args.fewest, args.limit), folder=Path(args.folder), space=Space.parse(args.over), trials=args.trials, folds=args.folds,
        gate=args.gate, seed=args.seed, progress=_bar if sys.stderr.isatty() else None,
    )  # fmt: skip
    print(json.dumps(tuned.to_dict(), indent=2) if args.json else tuned)
    return 0 if tuned.winner is not None else 1


def _measure(args: argparse.Namespace) -> Measure:
    if args.bundles:
        return Bundles.of(args.bundles, args.model, args.folder)
    from . import Store

    return Stored(Store.open(args.store), args.model, tuple(args.entries or ["all"]))


def _bar(done: int, whole: int) -> None:
    print(f"\r{done} of {whole} trials", end="\n" if done == whole else "", file=sys.stderr, flush=True)
