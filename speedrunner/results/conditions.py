"""Conditions: runs that differ only in their seed, with means and deviations over these seeds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from string import ascii_uppercase
from typing import Any, Literal

import msgspec
import pandas

from speedrunner.config.names import ConditionName
from speedrunner.config.schema import changes_results, to_mapping
from speedrunner.plain.plain_records import flat
from speedrunner.results.inference import Estimate, RunKey, bootstrap_seeds, estimate_score
from speedrunner.results.means import Spread, spread
from speedrunner.results.run_result import RunResult

NAMED = (
    *("env.", "method.", "model.name", "model.inducer_name", "model.prefix_caching", "model.context"),
    *("model.actor.thinking_tokens", "model.inducer.thinking_tokens"),
)
"""Keys that `ConditionName` names."""

OWN = (
    *("run.seed", "run.start_from", "run.carry_history"),
    *("run.wording", "library.visible_last", "library.hide"),
)
"""Keys in which runs of a condition differ, or which `ConditionName` names."""

LENGTH = ("run.rollouts", "run.eval_every")
"""Keys that do not distinguish conditions: values at a common checkpoint do not depend on them."""

FAMILIES = ("scienceworld-family3", "scienceworld-family4")
"""The environments whose mean the paper reports as ScienceWorld."""

ZOMBIES = {"0x": "crafter-zombie_frequency0", "1x": "crafter", "2x": "crafter-zombie_frequency2"}
"""The environments with no, usual and twice as many zombies."""

OURS, REACT = "speedrunner", "react"
OFF, ASI_STYLE, ALL_PUBLIC = ABLATIONS = (
    f"{OURS}-no-interpreter",
    f"{OURS}-prompt_asi_style",
    f"{OURS}-visibility_all_public",
)
"""SpeedRunner without one of its parts, by `ConditionName.method`."""

TOO_MANY = 0.02
"""Share of test episodes that a limit of the machinery may end before a table flags the value."""

KEYS = ("env", "method", "model")


@dataclass(frozen=True, eq=False)
class Condition:
    """The runs of one environment, method and model; or a single run that is compared.

    Attributes:
        condition_name: `method` also names other differences from runs of the same environment and model.
        runs: by wording and seed, ascending; all have one wording, unless `pool_wordings` joined several.
        title: its name for people.
    """

    condition_name: ConditionName
    runs: dict[RunKey, RunResult]
    title: str

    @property
    def names(self) -> tuple[str, str, str]:
        """Return environment, method and model."""
        return self.condition_name.env, self.condition_name.method, self.condition_name.model

    @property
    def variant(self) -> str:
        """Return the differences that `condition_name.method` names in addition to the method."""
        return self.condition_name.method.removeprefix(self.first.condition_name.method)

    @property
    def first(self) -> RunResult:
        """Return the run with the smallest seed."""
        return next(iter(self.runs.values()))

    @property
    def points(self) -> list[int]:
        """Return the checkpoints that at least one seed has finished, ascending."""
        return sorted({point for run in self.runs.values() for point in run.points})

    def spread(self, column: str) -> dict[int, Spread]:
        """Return mean and deviation of `RunResult.average` over the seeds, by checkpoint."""
        values: dict[int, list[float]] = {}
        for run in self.runs.values():
            for point, value in run.average(column).items():
                values.setdefault(point, []).append(value)
        return {point: found for point in sorted(values) if (found := spread(values[point]))}

    def values(self, point: int, column: str) -> dict[RunKey, list[float]]:
        """Return `RunResult.values` of the runs that have finished a checkpoint."""
        runs = {key: run for key, run in self.runs.items() if point in run.points}
        return {key: run.values(point, column).tolist() for key, run in runs.items()}

    def estimate(self, point: int, column: str) -> Estimate | None:
        """Return the mean over seeds with its interval; `None` without values."""
        values = self.values(point, column)
        return estimate_score(values) if column == "score" else bootstrap_seeds(values)


def has_cache(condition: Condition) -> bool:
    """Return whether the server had a prefix cache, which is the default."""
    return condition.first.config.model.prefix_caching is not False


def after_third(method: str) -> str:
    """Return the name of a method that was trained on ScienceWorld 3, then 4."""
    return f"{method}-from_{FAMILIES[0]}"


def returned_to_third(method: str) -> str:
    """Return the name of that policy's evaluation on ScienceWorld 3."""
    return f"{method}-from_{FAMILIES[1]}-{after_third(method)}"


def group_runs(runs: Sequence[RunResult]) -> tuple[list[Condition], list[str]]:
    """Group runs that differ only in their seed.

    Returns:
        The conditions, sorted by name. Runs of one environment and model with other settings than the rest
        have a letter in their method's name. Also a line that says what the letters mean, and one for each
        run that is left out because another one has the same condition and seed (the one with more finished
        checkpoints is used).
    """
    settings = {id(run): _list_settings(run) for run in runs}
    groups: dict[ConditionName, dict[RunKey, RunResult]] = {}
    notes = []
    letters: dict[tuple[str, str], dict[str, str]] = {}
    for run in sorted(runs, key=lambda run: -len(run.points)):
        comparable = [
            settings[id(other)]
            for other in runs
            if (other.condition_name.env, other.condition_name.model)
            == (run.condition_name.env, run.condition_name.model)
        ]
        differing = ", ".join(
            f"{key}={'default' if value is None else value}"
            for key, value in settings[id(run)].items()
            if any(other.get(key, value) != value for other in comparable)
        )
        method = run.condition_name.method
        if differing:
            known = letters.setdefault((run.condition_name.env, run.condition_name.model), {})
            number = len(known)
            method += f" {known.setdefault(differing, ascii_uppercase[number:][:1] or str(number + 1))}"
        seeds = groups.setdefault(msgspec.structs.replace(run.condition_name, method=method), {})
        if run.key in seeds:
            notes.append(f"{run.path} is left out: it has the condition and seed of {seeds[run.key].path}")
        else:
            seeds[run.key] = run
    notes += [
        f"{env}, {model}: " + "; ".join(f"{letter} has {differing}" for differing, letter in known.items())
        for (env, model), known in sorted(letters.items())
    ]
    return [
        Condition(name, dict(sorted(seeds.items())), f"{name.method}, {name.model}")
        for name, seeds in sorted(groups.items())
    ], notes


def pool_wordings(conditions: Sequence[Condition]) -> list[Condition]:
    """Return the conditions; those of other wordings are joined to that of the usual one, if there is one."""
    pooled: dict[ConditionName, Condition] = {}
    for each in conditions:  # sorted: the usual wording first
        method = re.sub(r"-wording\d", "", each.condition_name.method)
        name = msgspec.structs.replace(each.condition_name, method=method)
        base = pooled.get(name)
        pooled[name if base else each.condition_name] = (
            replace(base, runs=base.runs | each.runs) if base else each
        )
    return list(pooled.values())


Frame = Literal["checkpoints", "episodes", "sleeps", "skills"]


def stack_frames(conditions: Sequence[Condition], name: Frame) -> pandas.DataFrame:
    """Return one frame of all runs, with the columns `env`, `method`, `model`, `seed` and `run` in front.

    Rows are in the order of the conditions, seeds, and the runs' own frames; `checkpoint` is a column.
    """
    found = []
    for condition in conditions:
        for run in condition.runs.values():
            frame: pandas.DataFrame = getattr(run, name)
            if name == "checkpoints":
                frame = frame.reset_index()
            keys = dict(zip(KEYS, condition.names, strict=True))
            found.append(frame.assign(**keys, seed=run.seed, run=run.path))
    if not found:
        return pandas.DataFrame(columns=[*KEYS, "seed", "run"])
    whole = pandas.concat([frame for frame in found if len(frame)] or found[:1], ignore_index=True)
    front = [*KEYS, "seed", "run"]
    return whole[[*front, *(column for column in whole.columns if column not in front)]]


def _list_settings(run: RunResult) -> dict[str, Any]:
    """Return the values of a configuration that change results and that `ConditionName` does not name."""
    evaluates = run.config.run.start_from is not None and run.config.run.rollouts == 0
    return {
        key: value
        for key, value in flat(to_mapping(run.config)).items()
        if changes_results(key)
        and not key.startswith(NAMED)
        and key not in OWN
        and key not in LENGTH
        and not (evaluates and key == "run.sleep_every")
    }


PLACES: dict[str, tuple[str, ...]] = {
    "Crafter": ("crafter",),
    "ScienceWorld": FAMILIES,
    "BabyAI": ("babyai",),
}
"""The paper's columns, and the environments that each averages."""


def places(conditions: Sequence[Condition]) -> dict[str, tuple[str, ...]]:
    """Return the paper's columns that were played, then other environments. A column appears if any of its
    environments was played, and averages those."""
    played = {condition.condition_name.env for condition in conditions}
    found: dict[str, tuple[str, ...]] = {}
    for title, envs in PLACES.items():
        own = tuple(env for env in envs if env in played)
        if own:
            found[title if own == envs else own[0]] = own
    known = {env for envs in PLACES.values() for env in envs}
    return found | {env: (env,) for env in sorted(played - known)}


def frontier(points: Mapping[str, tuple[float, float]]) -> list[str]:
    """Return the names on the Pareto frontier of (cost, score) points, the cheapest first."""
    best: list[str] = []
    for name, (_, score) in sorted(points.items(), key=lambda each: (each[1][0], -each[1][1])):
        if not best or score > points[best[-1]][1]:
            best.append(name)
    return best
