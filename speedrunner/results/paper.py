"""The numbers of the paper's tables compared with measured ones. `paper.csv` has the published numbers with
table and section.

The paper's single ScienceWorld column is the mean over its two families, of means and of deviations.
"""

from __future__ import annotations

import csv
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from speedrunner.config.schema import ModelOptions
from speedrunner.results.cache_effects import has_cache
from speedrunner.results.checkpoints import CUT
from speedrunner.results.conditions import (
    FAMILIES,
    TOO_MANY,
    Condition,
    Spread,
    average,
    spread,
)
from speedrunner.results.quantities import QUANTITIES
from speedrunner.results.run_result import RunResult

FILE = Path(__file__).with_name("paper.csv")

SEEDS = {"truncation": 1}
"""Seeds of an experiment, if they are not the paper's usual 3."""


class Published(msgspec.Struct, frozen=True):
    """One number of the paper.

    Attributes:
        table: the label of its table or figure.
        place: the section.
        experiment: the experiment that measures the number here.
        quantity: see `speedrunner.results.quantities`.
        value: `None` if the paper shows it only in a figure.
    """

    table: str
    place: str
    experiment: str
    env: str
    method: str
    model: str
    quantity: str
    value: float | None
    sd: float | None


class PaperComparison(msgspec.Struct, frozen=True):
    """A number of the paper and the measured one.

    Attributes:
        model: model of the measured runs.
        ours: at the last checkpoint, over seeds.
        rollouts: training rollouts of the shortest measured run at that checkpoint.
        flag: set if the wall clock or the context ended over 2% of the test episodes behind it.
        missing: what is missing, and the command that produces it; empty if complete.
    """

    paper: Published
    model: str
    ours: Spread | None
    rollouts: int | None
    flag: str
    missing: str


def list_published() -> list[Published]:
    """Return the paper's numbers, in the order of its tables."""
    with FILE.open(newline="", encoding="utf-8") as file:
        rows = [{key: value or None for key, value in row.items()} for row in csv.DictReader(file)]
    return msgspec.convert(rows, list[Published], strict=False)


def compare_with_paper(
    numbers: Sequence[Published], conditions: Sequence[Condition], options: str = ""
) -> list[PaperComparison]:
    """Compare each number of the paper with the measured one, for each played model.

    Args:
        options: further options of the command that fills a gap, such as ` scale=smoke`.
    """
    models = played_models(conditions)
    return [
        _compare_number(number, model, sweep_command(number.experiment, config, options), conditions)
        for number in numbers
        for model, config in models.items()
    ]


def played_models(conditions: Sequence[Condition]) -> dict[str, ModelOptions]:
    """Return the models by their names in conditions, without those on servers without prefix cache."""
    return {each.condition_name.model: each.first.config.model for each in conditions if has_cache(each)}


def sweep_command(experiment: str, model: ModelOptions, options: str) -> str:
    """Return the command that plays an experiment with the models of a run; `options` as in
    `compare_with_paper`."""
    words = ["speedrunner", "sweep", f"experiment={experiment}", f"model={model.name}"]
    if model.inducer_name is not None:
        words.append(f"model.inducer_name={model.inducer_name}")
    return shlex.join(words) + options


def _compare_number(
    number: Published, model: str, command: str, conditions: Sequence[Condition]
) -> PaperComparison:
    asked: dict[tuple[str, str], Mapping[int, RunResult]] = {}

    def find(env: str, method: str) -> Mapping[int, RunResult]:
        asked[env, method] = runs = _cut_to_common_checkpoints(find_runs(conditions, env, method, model))
        return runs

    quantity = QUANTITIES[number.quantity]
    parts = [spread(quantity(find, env, number.method).values()) for env in list_envs(number.env)]
    known = [part for part in parts if part is not None]
    runs = [run for each in asked.values() for run in each.values()]
    last = [run.checkpoints.iloc[-1] for run in runs if len(run.checkpoints)]
    cut = max((float(row[[*CUT]].sum()) for row in last), default=0.0)
    gaps = list_gaps(asked, SEEDS.get(number.experiment, 3))
    return PaperComparison(
        paper=number,
        model=model,
        ours=average(known) if len(known) == len(parts) else None,
        rollouts=min((max(run.checkpoints.index) for run in runs if len(run.checkpoints)), default=None),
        flag=f"{cut:.1%} ended by a limit" if cut > TOO_MANY else "",
        missing=f"{'; '.join(gaps)}: {command}" if gaps else "",
    )


def list_envs(env: str) -> tuple[str, ...]:
    """Return the environments over which the paper averages one of its names of environments."""
    return FAMILIES if env == "scienceworld" else (env,)


def find_runs(conditions: Sequence[Condition], env: str, method: str, model: str) -> Mapping[int, RunResult]:
    """Return the runs of a condition; if several differ in more than seeds, those with the most rollouts."""
    fitting = [
        each
        for each in conditions
        if (each.condition_name.env, each.condition_name.model, each.first.condition_name.method)
        == (env, model, method)
    ]
    farthest = max(fitting, key=lambda each: (max(each.points, default=-1), len(each.runs)), default=None)
    return {} if farthest is None else farthest.runs


def _cut_to_common_checkpoints(runs: Mapping[int, RunResult]) -> Mapping[int, RunResult]:
    """Return the runs up to the last checkpoint that all of them have finished; runs without checkpoints are
    left out."""
    started = [set(run.checkpoints.index) for run in runs.values() if len(run.checkpoints)]
    common = set.intersection(*started) if started else set()
    if not common:
        return runs
    return {seed: replace(run, checkpoints=run.checkpoints.loc[: max(common)]) for seed, run in runs.items()}


def list_gaps(asked: Mapping[tuple[str, str], Mapping[int, RunResult]], seeds: int) -> list[str]:
    """Return the missing and unfinished runs, by environment and method, as text."""
    gaps = []
    for (env, method), runs in asked.items():
        name = f"{method} on {env}"
        open_ = [str(seed) for seed, run in runs.items() if run.unfinished]
        if not runs:
            gaps.append(f"no run of {name}")
        elif len(runs) < seeds:
            gaps.append(f"{len(runs)} of {seeds} seeds of {name}")
        if open_:
            gaps.append(f"seed {', '.join(open_)} of {name} unfinished")
    return gaps
