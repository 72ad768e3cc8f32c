"""The paper's numbers compared with measured ones. `paper.csv` has the published numbers with table and
section.

The paper's single ScienceWorld column is the mean over its two families, of means and of deviations.
"""

from __future__ import annotations

import csv
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from speedrunner.config.schema import ModelOptions
from speedrunner.results.cache_effects import has_cache
from speedrunner.results.conditions import (
    FAMILIES,
    TOO_MANY,
    Condition,
    Spread,
    average,
    share_cut,
    spread,
)
from speedrunner.results.run_result import RunResult

FILE = Path(__file__).with_name("paper.csv")

SEEDS = {"truncation": 1}
"""Seeds of an experiment, if they are not the paper's usual 3."""


class Published(msgspec.Struct, frozen=True):
    """One number of the paper.

    Attributes:
        table: the label of its table or figure, or `prose`.
        place: the section.
        experiment: the experiment that measures the number here.
        quantity: see `QUANTITIES`.
        relation: `about`, `under` and so on; empty for an exact number.
        value: `None` if the paper shows it only in a figure.
    """

    table: str
    place: str
    experiment: str
    env: str
    method: str
    model: str
    quantity: str
    relation: str
    value: float | None
    sd: float | None


class Beside(msgspec.Struct, frozen=True):
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


Find = Callable[[str, str], Mapping[int, RunResult]]
"""Returns the runs of an environment and method, by seed."""

Quantity = Callable[[Find, str, str], Mapping[int, float | None]]
"""Returns a value of an environment and method, by seed."""


def _each(value: Callable[[RunResult], float | None]) -> Quantity:
    return lambda find, env, method: {seed: value(run) for seed, run in find(env, method).items()}


def _mean(run: RunResult, measure: str, point: int | None = None) -> float | None:
    """Return a column of a run's checkpoint, the last one by default."""
    column = run.checkpoints[measure].dropna()
    if point is None:
        return float(column.iloc[-1]) if len(column) else None
    return float(column[point]) if point in column.index else None


def _scaled(measure: str, factor: float, point: int | None = None) -> Quantity:
    return _each(lambda run: _times(_mean(run, measure, point), factor))


def _combat_functions(run: RunResult) -> float | None:
    combat, functions = _mean(run, "combat"), _mean(run, "functions")
    return None if combat is None or functions is None else combat * functions


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else factor * value


def _compared(
    measure: str, other: Callable[[str], str], form: Callable[[float, float], float | None]
) -> Quantity:
    """Compare a method's runs with those of another method with the same seeds, by the measure `measure`."""

    def quantity(find: Find, env: str, method: str) -> dict[int, float | None]:
        theirs = find(env, other(method))
        found: dict[int, float | None] = {}
        for seed, run in find(env, method).items():
            if seed in theirs:
                own, their = _mean(run, measure), _mean(theirs[seed], measure)
                found[seed] = None if own is None or their is None else form(own, their)
        return found

    return quantity


def _ratio(own: float, other: float) -> float | None:
    return own / other if other else None


def _percent(own: float, other: float) -> float | None:
    return 100 * (own / other - 1) if other else None


def _returned(method: str) -> str:
    """Return the method name of the evaluation on ScienceWorld 3 after training on 4 as well."""
    return f"{method}-from_scienceworld-family4-{method}-from_scienceworld-family3"


def _change_of_calls(run: RunResult) -> float | None:
    first, last = _mean(run, "llm_calls", 0), _mean(run, "llm_calls")
    return None if first is None or last is None else _percent(last, first)


def _truncated(value: Callable[[RunResult], float | None]) -> Quantity:
    """Use the seeds with a truncated library, or all seeds if there are none."""

    def quantity(find: Find, env: str, method: str) -> dict[int, float | None]:
        truncated = find(env, f"{method}-visible_last50-from_{env}")
        runs = find(env, method)
        return {seed: value(run) for seed, run in runs.items() if seed in truncated or not truncated}

    return quantity


def _unsolved_by_best(find: Find, env: str, method: str) -> dict[int, float | None]:
    scores = {
        seed: score for seed, run in find(env, method).items() if (score := _mean(run, "score")) is not None
    }
    best = max(scores, key=lambda seed: scores[seed], default=None)
    return {} if best is None else {best: 100 * (1 - scores[best])}


QUANTITIES: dict[str, Quantity] = {
    **{name: _scaled(name, 1.0) for name in ("functions", "max_depth", "mean_depth", "density")},
    "cyclomatic": _scaled("cyclomatic", 1.0),
    "combat_percent": _scaled("combat", 100),
    "combat_functions": _each(_combat_functions),
    **{name: _scaled(name, 1.0) for name in ("score", "output", "cost_usd")},
    "score_percent": _scaled("score", 100),
    "score_percent_at_0": _scaled("score", 100, 0),
    "score_without_library": _truncated(lambda run: _mean(run, "score", 0)),
    "score_with_whole_library": _truncated(lambda run: _mean(run, "score")),
    "unsolved_percent_of_best_seed": _unsolved_by_best,
    "llm_calls_change_percent": _each(_change_of_calls),
    "output_of_react": _compared("output", lambda method: "react", _ratio),
    "asi_output_ratio": _compared("output", lambda method: "asi", lambda own, other: _ratio(other, own)),
    "opo_output_ratio": _compared("output", lambda method: "opo", lambda own, other: _ratio(other, own)),
    "output_percent_to_asi": _compared("output", lambda method: "asi", _percent),
    "output_percent_to_asi_replay": _compared("output", lambda method: "asi_replay", _percent),
    "retention_points": _compared("score", _returned, lambda own, later: 100 * (later - own)),
    "retention_cost_percent": _compared("actor_usd", _returned, lambda own, later: _percent(later, own)),
}
"""By name; docs/results.md describes each. Most use the last checkpoint."""


def published() -> list[Published]:
    """Return the paper's numbers, in the order of its tables."""
    with FILE.open(newline="", encoding="utf-8") as file:
        rows = [{key: value or None for key, value in row.items()} for row in csv.DictReader(file)]
    texts = ("relation",)
    return [
        msgspec.convert({k: v or "" if k in texts else v for k, v in row.items()}, Published, strict=False)
        for row in rows
    ]


def beside(numbers: Sequence[Published], conditions: Sequence[Condition], options: str = "") -> list[Beside]:
    """Compare each number of the paper with the measured one, for each played model.

    Args:
        options: further options of the command that fills a gap, such as ` scale=pilot`.
    """
    models = played_models(conditions)
    return [
        _beside(number, model, sweep_command(number.experiment, config, options), conditions)
        for number in numbers
        for model, config in models.items()
    ]


def played_models(conditions: Sequence[Condition]) -> dict[str, ModelOptions]:
    """Return the models by their names in conditions, without those on servers without prefix cache."""
    return {each.condition_name.model: each.runs[0].config.model for each in conditions if has_cache(each)}


def sweep_command(experiment: str, model: ModelOptions, options: str) -> str:
    """Return the command that plays an experiment with the models of a run; `options` as in
    `compare_paper`."""
    words = ["speedrunner", "sweep", f"experiment={experiment}", f"model={model.name}"]
    if model.inducer_name is not None:
        words.append(f"model.inducer_name={model.inducer_name}")
    return shlex.join(words) + options


def _beside(number: Published, model: str, command: str, conditions: Sequence[Condition]) -> Beside:
    asked: dict[tuple[str, str], Mapping[int, RunResult]] = {}

    def find(env: str, method: str) -> Mapping[int, RunResult]:
        asked[env, method] = runs = _alike(_runs(conditions, env, method, model))
        return runs

    quantity = QUANTITIES[number.quantity]
    envs = FAMILIES if number.env == "scienceworld" else (number.env,)
    parts = [spread(quantity(find, env, number.method).values()) for env in envs]
    known = [part for part in parts if part is not None]
    runs = [run for each in asked.values() for run in each.values()]
    last = [run.checkpoints.iloc[-1] for run in runs if len(run.checkpoints)]
    cut = max((share_cut([row]) for row in last), default=0.0)
    gaps = _gaps(asked, SEEDS.get(number.experiment, 3))
    return Beside(
        paper=number,
        model=model,
        ours=average(known) if len(known) == len(parts) else None,
        rollouts=min((max(run.checkpoints.index) for run in runs if len(run.checkpoints)), default=None),
        flag=f"{cut:.1%} ended by a limit" if cut > TOO_MANY else "",
        missing=f"{'; '.join(gaps)}: {command}" if gaps else "",
    )


def _runs(conditions: Sequence[Condition], env: str, method: str, model: str) -> Mapping[int, RunResult]:
    """Return the runs of a condition; if several differ in more than seeds, those with the most rollouts."""
    fitting = [
        each
        for each in conditions
        if (each.condition_name.env, each.condition_name.model, each.runs[0].condition_name.method)
        == (env, model, method)
    ]
    farthest = max(fitting, key=lambda each: (max(each.points, default=-1), len(each.runs)), default=None)
    return {} if farthest is None else {run.seed: run for run in farthest.runs}


def _alike(runs: Mapping[int, RunResult]) -> Mapping[int, RunResult]:
    """Return the runs up to the last checkpoint that all of them have finished; runs without checkpoints are
    left out."""
    started = [set(run.checkpoints.index) for run in runs.values() if len(run.checkpoints)]
    common = set.intersection(*started) if started else set()
    if not common:
        return runs
    return {seed: replace(run, checkpoints=run.checkpoints.loc[: max(common)]) for seed, run in runs.items()}


def _gaps(asked: Mapping[tuple[str, str], Mapping[int, RunResult]], seeds: int) -> Iterable[str]:
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
