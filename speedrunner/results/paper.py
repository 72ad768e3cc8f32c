"""The numbers of the paper's tables (`paper.csv`) compared with measured ones.

The paper's single ScienceWorld column is the mean over its two families, of means and of deviations.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from functools import cache
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
from speedrunner.results.means import Spread, average, spread_seeds
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


def paper_tables(
    numbers: Sequence[Published], conditions: Sequence[Condition], options: str = ""
) -> list[Table]:
    """Return the paper's tables with the measured numbers, for each played model.

    Args:
        options: further options of the command that fills a gap, such as ` scale=smoke`.
    """
    columns = (
        *("place", "experiment", "env", "method", "quantity", "paper_model", "paper"),
        *("paper_std", "model", "ours", "ours_std", "seeds", "difference", "missing"),
    )
    tables: dict[str, list[tuple[Cell, ...]]] = {}
    for number in numbers:
        for model, chosen in played_models(conditions).items():
            measured = _measure(number, model, chosen, conditions, options)
            tables.setdefault(number.table, []).append(
                (
                    *(number.place, number.experiment, number.env, number.method, number.quantity),
                    *(number.model, number.value, number.sd, str(model), *measured),
                )
            )
    return [
        Table(label.partition(":")[2] or label, caption("paper", label=label), columns, rows)
        for label, rows in tables.items()
    ]


def _measure(
    number: Published,
    model: ModelVariant,
    chosen: ModelOptions,
    conditions: Sequence[Condition],
    options: str,
) -> tuple[Cell, ...]:
    """Return the measured mean, deviation, seeds and difference from a number of the paper, and the command
    that plays missing and unfinished runs; empty if there are three finished seeds."""
    treatment = TREATMENTS[number.method]
    asked = [find_runs(conditions, env, treatment, model).values() for env in ENVS[number.env]]
    known = [part for runs in asked if (part := _quantity(number.quantity, runs)) is not None]
    ours = average(known) if len(known) == len(asked) else None
    words = ["speedrunner", "sweep", f"experiment={number.experiment}", f"model={chosen.name}"]
    is_complete = all(len(runs) >= SEEDS and not any(run.unfinished for run in runs) for runs in asked)
    missing = "" if is_complete else shlex.join(words) + options
    difference = None if ours is None or number.value is None else ours.mean - number.value
    measured = (None, None, 0) if ours is None else (ours.mean, ours.sd, ours.seeds)
    return *measured, difference, missing


def _quantity(name: str, runs: Collection[RunResult]) -> Spread | None:
    """Return a quantity over seeds at the last checkpoint that all started runs have finished."""
    column = {WITHOUT: "score", WITH: "score", "combat_percent": "combat"}.get(name, name)
    started = [run for run in runs if run.points]
    common = set.intersection(*(set(run.points) for run in started)) if started else set()
    if not common:
        return None
    point = 0 if name == WITHOUT else max(common)
    factor = 100.0 if name == "combat_percent" else 1.0
    return spread_seeds(factor * run.checkpoints[column] for run in started).get(point)
