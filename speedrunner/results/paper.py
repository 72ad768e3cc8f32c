"""The numbers of the paper's tables (`paper.csv`) compared with measured ones.

The paper's single ScienceWorld column is the mean over its two families, of means and of deviations.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path

import msgspec
from msgspec.structs import replace

from speedrunner.config.condition import ModelVariant
from speedrunner.config.schema import ModelOptions
from speedrunner.plain.plain_records import read_table
from speedrunner.results.conditions import (
    ABLATIONS,
    ASI,
    BABYAI,
    CRAFTER,
    FAMILIES,
    FOURTH,
    METHODS,
    OPO,
    OURS,
    THIRD,
    VOYAGER,
    ZOMBIES,
    Condition,
    continue_in,
    find_runs,
    played_models,
)
from speedrunner.results.means import Spread, average, mean_sd, spread
from speedrunner.results.run_result import RunResult
from speedrunner.results.writing import Cell, Table, caption

SEEDS = 3
"""Seeds of the paper's experiments."""

WITHOUT, WITH = "score_without_library", "score_with_whole_library"
"""Scores before training and at the last checkpoint, of the seeds with a truncated library."""

ENVS = {str(env): (env,) for env in (BABYAI, *ZOMBIES.values(), *FAMILIES)} | {"scienceworld": FAMILIES}
"""The environments that the paper's files name; it averages ScienceWorld over both families."""

CONTINUED = [continue_in(THIRD, method) for method in (OPO, ASI, OURS)]
TREATMENTS = {
    str(treatment): treatment
    for treatment in (
        *(*METHODS, *ABLATIONS, *CONTINUED),
        *(continue_in(FOURTH, treatment) for treatment in CONTINUED),
        *(replace(continue_in(CRAFTER, VOYAGER), visible_last=last) for last in (50, 100, 200, 400, 800)),
    )
}
"""The treatments that the paper's files name."""


class Published(msgspec.Struct, frozen=True):
    """One number of the paper.

    Attributes:
        table: the label of its table or figure.
        place: the section.
        experiment: the experiment that measures the number here.
        quantity: a column of `RunResult.checkpoints`, `combat_percent`, `WITHOUT` or `WITH`.
        env, method: keys of `ENVS` and `TREATMENTS`.
        value: `None` if the paper shows it only in a figure.
    """

    table: str
    place: str
    experiment: str
    env: str
    method: str
    model: str
    quantity: str
    value: float | None = None
    sd: float | None = None


@cache
def list_published() -> list[Published]:
    """Return the paper's numbers, in the order of its tables."""
    return msgspec.convert(read_table(Path(__file__).with_name("paper.csv")), list[Published], strict=False)


class PaperComparison(msgspec.Struct, frozen=True):
    """A number of the paper and the measured one.

    Attributes:
        model: model of the measured runs.
        ours: at the last checkpoint, over seeds.
        missing: the command that plays missing and unfinished runs; empty if there are three finished seeds.
    """

    paper: Published
    model: str
    ours: Spread | None
    missing: str


def compare_with_paper(
    numbers: Sequence[Published], conditions: Sequence[Condition], options: str = ""
) -> list[PaperComparison]:
    """Compare each number of the paper with the measured one, for each played model.

    Args:
        options: further options of the command that fills a gap, such as ` scale=smoke`.
    """
    return [
        _compare_number(number, model, chosen, conditions, options)
        for number in numbers
        for model, chosen in played_models(conditions).items()
    ]


def _compare_number(
    number: Published,
    model: ModelVariant,
    chosen: ModelOptions,
    conditions: Sequence[Condition],
    options: str,
) -> PaperComparison:
    treatment = TREATMENTS[number.method]
    asked = [find_runs(conditions, env, treatment, model).values() for env in ENVS[number.env]]
    known = [part for runs in asked if (part := _quantity(number.quantity, runs)) is not None]
    words = ["speedrunner", "sweep", f"experiment={number.experiment}", f"model={chosen.name}"]
    is_complete = all(len(runs) >= SEEDS and not any(run.unfinished for run in runs) for runs in asked)
    return PaperComparison(
        paper=number,
        model=str(model),
        ours=average(known) if len(known) == len(asked) else None,
        missing="" if is_complete else shlex.join(words) + options,
    )


def _quantity(name: str, runs: Collection[RunResult]) -> Spread | None:
    """Return a quantity over seeds at the last checkpoint that all started runs have finished."""
    column = {WITHOUT: "score", WITH: "score", "combat_percent": "combat"}.get(name, name)
    started = [run for run in runs if run.points]
    common = set.intersection(*(set(run.points) for run in started)) if started else set()
    if not common:
        return None
    point = 0 if name == WITHOUT else max(common)
    factor = 100.0 if name == "combat_percent" else 1.0
    values = [run.average(column).get(point) for run in started]
    return spread(None if value is None else factor * value for value in values)


def paper_tables(rows: Sequence[PaperComparison]) -> list[Table]:
    """Return the paper's tables with the measured numbers."""
    return [_paper_table(label, list(own)) for label, own in groupby(rows, key=lambda row: row.paper.table)]


def _paper_table(label: str, rows: list[PaperComparison]) -> Table:
    columns = (
        *("place", "experiment", "env", "method", "quantity", "paper_model", "paper"),
        *("paper_std", "model", "ours", "ours_std", "seeds", "difference", "missing"),
    )
    cells: list[tuple[Cell, ...]] = []
    for row in rows:
        paper, ours = row.paper, row.ours
        difference = None if ours is None or paper.value is None else ours.mean - paper.value
        cells.append(
            (
                *(paper.place, paper.experiment, paper.env, paper.method, paper.quantity, paper.model),
                *(paper.value, paper.sd, row.model, *mean_sd(ours)),
                *(ours.seeds if ours else 0, difference, row.missing),
            )
        )
    return Table(label.partition(":")[2] or label, caption("paper", label=label), columns, cells)
