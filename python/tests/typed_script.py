"""What an analyst writes, with every type said: mypy --strict has nothing to add, and it runs."""

from __future__ import annotations

import sys
from pathlib import Path

import nearpage
import pandas
import pyarrow
from nearpage import fleet
from nearpage.fleet.answers import Answer, Comparison, Unit, compare
from nearpage.fleet.calibration import Calibrated, calibrate
from nearpage.fleet.manage import Gone, gc
from nearpage.fleet.sql import fidelity_of


def machine_of(report: nearpage.Report) -> dict[str, str]:
    fidelity: float | None = report.fidelity.percent
    shown: str = "unknown" if fidelity is None else f"{fidelity:.1f} %"
    zones: nearpage.Table = report.zones
    names: list[str] = zones.column_names
    frame: pandas.DataFrame = zones.to_pandas()
    schema: pyarrow.Schema = zones.schema
    assert list(frame.columns) == names == schema.names
    return {"kernel": report.kernel, "fidelity": shown}


def taken_in(store: fleet.Store, paths: list[Path]) -> list[str]:
    taken: list[fleet.Ingested] = fleet.ingest(store, paths, service="builds", tags={"of": "types"})
    return [one.hash for one in taken if one.hash is not None]


def told(store: fleet.Store, executor: fleet.Processes | None) -> Comparison:
    study: fleet.Study = fleet.Study(models=["auto", "nearpage"], seeds=[0])
    table: pyarrow.Table = fleet.run(study, store=store, executor=executor)
    return compare(table, figures=["holds"], baseline="auto")


def lines(comparison: Comparison) -> list[str]:
    answers: list[Answer] = comparison.answers
    units: list[Unit] = [unit for answer in answers for unit in answer.units]
    frame: pandas.DataFrame = comparison.to_pandas()
    assert len(frame) == len(answers)
    verdicts: list[str] = [f"{answer.figure.label}: {answer.verdict}, {answer.ratio:.2f}" for answer in answers]
    return verdicts + [f"{unit.name}: {unit.difference:.0f}" for unit in units]


def main(bundle: Path, folder: Path) -> None:
    opened: nearpage.Bundle = nearpage.Bundle.open(bundle)
    print(machine_of(opened.replay()))
    store: fleet.Store = fleet.Store.create(folder)
    for hash in taken_in(store, [bundle]):
        events: pandas.DataFrame = store.events(hash).to_pandas(["event", "node", "zone"])
        print(len(events))
    print("\n".join(lines(told(store, None))))
    known: list[Calibrated] = calibrate(fidelity_of(store.entries()), by=["kernel"])
    gone: Gone = gc(store)
    print(known[0], gone)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
