"""Conditions: runs that differ only in their seed, with means and deviations over these seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pandas
from msgspec.structs import replace

from speedrunner.config.condition import COLUMNS, Choice, ConditionId, ModelVariant, Start, Treatment
from speedrunner.config.schema import Config, ModelOptions, changes_results, to_mapping
from speedrunner.plain.plain_records import flat
from speedrunner.results.inference import Estimate, Values, estimate_mean, estimate_score
from speedrunner.results.means import Spread, spread_seeds
from speedrunner.results.run_result import RunResult

NAMED = (
    *("env.", "method.", "library.", "model.name", "model.prefix_caching", "model.context"),
    *("model.actor.thinking_tokens", "model.inducer.thinking_tokens"),
)
"""Keys that `ConditionId` has."""

OWN = ("run.seed", "run.start_from", "run.carry_history", "run.wording")
"""Keys in which runs of a condition differ, or which `ConditionId` has."""

LENGTH = ("run.rollouts", "run.eval_every")
"""Keys that do not distinguish conditions: values at a common checkpoint do not depend on them."""

SLEEP_EVERY = "run.sleep_every"
"""A key without effect on evaluations of a stored policy. Any other key that a run lacks has its default."""

BABYAI, CRAFTER = Choice("babyai"), Choice("crafter")
FAMILIES = THIRD, FOURTH = tuple(Choice("scienceworld", {"family": family}) for family in (3, 4))
"""The environments whose mean the paper reports as ScienceWorld."""

ZOMBIES = {
    "0x": Choice("crafter", {"zombie_frequency": 0}),
    "1x": CRAFTER,
    "2x": Choice("crafter", {"zombie_frequency": 2}),
}
"""The environments with no, usual and twice as many zombies."""

METHODS = REACT, OPO, ASI, VOYAGER, ASI_REPLAY, OURS = tuple(
    Treatment(Choice(name)) for name in ("react", "opo", "asi", "voyager", "asi_replay", "speedrunner")
)
ABLATIONS = OFF, ASI_STYLE, ALL_PUBLIC = tuple(
    Treatment(Choice(OURS.method.name, {option: value}))
    for option, value in (("interpreter", False), ("prompt", "asi_style"), ("visibility", "all_public"))
)
"""SpeedRunner without one of its parts."""


@dataclass(frozen=True, eq=False)
class Condition:
    """The runs of one condition.

    Attributes:
        identity: what they have in common.
        runs: by seed, ascending.
    """

    identity: ConditionId
    runs: dict[int, RunResult]

    @property
    def names(self) -> tuple[str, str, str]:
        """Return environment, method and model."""
        return self.identity.names

    @property
    def title(self) -> str:
        """Return method and model."""
        return ", ".join(self.names[1:])

    @property
    def first(self) -> RunResult:
        """Return the run with the smallest seed."""
        return next(iter(self.runs.values()))

    @property
    def points(self) -> list[int]:
        """Return the checkpoints that at least one seed has finished, ascending."""
        return sorted({point for run in self.runs.values() for point in run.points})

    def spread(self, column: str) -> dict[int, Spread]:
        """Return mean and deviation of a column of `checkpoints` over the seeds, by checkpoint."""
        return spread_seeds(run.checkpoints[column] for run in self.runs.values())

    def values(self, point: int, column: str) -> Values:
        """Return `RunResult.values` of the runs that have finished a checkpoint."""
        return {seed: run.values(point, column) for seed, run in self.runs.items() if point in run.points}

    def estimate(self, point: int, column: str) -> Estimate | None:
        """Return the mean over seeds with its interval; `None` without values."""
        values = self.values(point, column)
        return estimate_score(values) if column == "score" else estimate_mean(values)


def continue_in(env: Choice, treatment: Treatment) -> Treatment:
    """Return the treatment that starts with the policy which another one has learned in an environment."""
    previous = None if treatment == Treatment(treatment.method) else treatment
    return Treatment(treatment.method, start=Start(env, previous))


def played_models(conditions: Sequence[Condition]) -> dict[ModelVariant, ModelOptions]:
    """Return the played models with their options, without those on servers without prefix cache."""
    models = {each.identity.model: each.first.config.model for each in conditions}
    return {model: options for model, options in models.items() if model.has_cache}


def find_runs(
    conditions: Sequence[Condition], env: Choice, treatment: Treatment, model: ModelVariant
) -> Mapping[int, RunResult]:
    """Return the runs of a condition; if several differ in other settings, those with the most rollouts."""
    wanted = ConditionId(env, treatment, model)
    fitting = [each for each in conditions if each.first.condition == wanted]
    farthest = max(fitting, key=lambda each: (max(each.points, default=-1), len(each.runs)), default=None)
    return {} if farthest is None else farthest.runs


def group_runs(runs: Sequence[RunResult]) -> tuple[list[Condition], list[str]]:
    """Group runs that differ only in their seed.

    Returns:
        The conditions, sorted by name; other settings than those of comparable runs (of one environment and
        model) are part of their method's name. Also a line for each run that is left out because another one
        has the same condition and seed (the one with more finished checkpoints is used).
    """
    listed = [_list_settings(run) for run in runs]
    usual = dict.fromkeys(key for settings in listed for key in settings if key != SLEEP_EVERY)
    described = [(run, usual | settings) for run, settings in zip(runs, listed, strict=True)]
    comparable: dict[tuple[Choice, ModelVariant], list[dict[str, Any]]] = {}
    for run, settings in described:
        comparable.setdefault((run.condition.env, run.condition.model), []).append(settings)
    groups: dict[ConditionId, dict[int, RunResult]] = {}
    notes = []
    for run, settings in sorted(described, key=lambda run_settings: -len(run_settings[0].points)):
        identity = run.condition
        differing = ", ".join(
            f"{key}={'default' if value is None else value}"
            for key, value in settings.items()
            if any(other.get(key, value) != value for other in comparable[identity.env, identity.model])
        )
        identity = replace(identity, treatment=replace(identity.treatment, settings=differing))
        seeds = groups.setdefault(identity, {})
        if run.seed in seeds:
            notes.append(f"{run.path} is left out: it has the condition and seed of {seeds[run.seed].path}")
        else:
            seeds[run.seed] = run
    conditions = [Condition(identity, dict(sorted(seeds.items()))) for identity, seeds in groups.items()]
    return sorted(conditions, key=lambda condition: condition.names), notes


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
            found.append(frame.assign(**condition.identity.by_column, seed=run.seed, run=run.path))
    if not found:
        return pandas.DataFrame(columns=[*COLUMNS, "seed", "run"])
    whole = pandas.concat([frame for frame in found if len(frame)] or found[:1], ignore_index=True)
    front = [*COLUMNS, "seed", "run"]
    return whole[[*front, *(column for column in whole.columns if column not in front)]]


def list_settings(config: Config) -> dict[str, Any]:
    """Return the values that change results and that `ConditionId` does not have, by their keys."""
    return {
        key: value
        for key, value in flat(to_mapping(config)).items()
        if changes_results(key) and not key.startswith(NAMED) and key not in OWN
    }


def _list_settings(run: RunResult) -> dict[str, Any]:
    """Return `list_settings` without those in which runs of a condition may differ."""
    evaluates = run.config.run.start_from is not None and run.config.run.rollouts == 0
    free = (*LENGTH, SLEEP_EVERY) if evaluates else LENGTH
    return {key: value for key, value in list_settings(run.config).items() if key not in free}


PLACES = {"Crafter": (CRAFTER,), "ScienceWorld": FAMILIES, "BabyAI": (BABYAI,)}
"""The paper's columns, and the environments that each averages."""


def places(conditions: Sequence[Condition]) -> dict[str, tuple[Choice, ...]]:
    """Return the paper's columns that were played, then other environments. A column appears if any of its
    environments was played, and averages those."""
    played = {condition.identity.env for condition in conditions}
    found: dict[str, tuple[Choice, ...]] = {}
    for title, envs in PLACES.items():
        own = tuple(env for env in envs if env in played)
        if own:
            found[title if own == envs else str(own[0])] = own
    known = {env for envs in PLACES.values() for env in envs}
    return found | {str(env): (env,) for env in sorted(played - known, key=str)}


def frontier(points: Mapping[str, tuple[float, float]]) -> list[str]:
    """Return the names on the Pareto frontier of (cost, score) points, the cheapest first."""
    best: list[str] = []
    for name, (_, score) in sorted(points.items(), key=lambda each: (each[1][0], -each[1][1])):
        if not best or score > points[best[-1]][1]:
            best.append(name)
    return best
