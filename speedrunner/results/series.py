"""Numbers as figures take them: by setting, over training rollouts or at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from speedrunner.results.conditions import FAMILIES, Condition, Spread, average

PLACES: dict[str, tuple[str, ...]] = {
    "Crafter": ("crafter",),
    "ScienceWorld": FAMILIES,
    "BabyAI": ("babyai",),
}
"""The paper's columns, and the environments of which each is the mean."""


class Curve(msgspec.Struct, frozen=True):
    """Something of one setting over its checkpoints.

    Attributes:
        points: by rollouts before the checkpoint.
        runs: paths of the runs that it stands on.
    """

    points: dict[int, Spread]
    runs: list[str]

    @property
    def last(self) -> Spread | None:
        """At its last checkpoint."""
        return self.points[max(self.points)] if self.points else None


def places(conditions: Sequence[Condition]) -> dict[str, tuple[str, ...]]:
    """The paper's columns that were played, then any other environments; a column is shown as soon as one of
    the environments behind it was played, and is then the mean of those that were."""
    played = {condition.condition_name.env for condition in conditions}
    found = {title: tuple(env for env in envs if env in played) for title, envs in PLACES.items()}
    known = {env for envs in PLACES.values() for env in envs}
    found |= {env: (env,) for env in sorted(played - known)}
    return {_title(title, envs): envs for title, envs in found.items() if envs}


def _title(title: str, envs: tuple[str, ...]) -> str:
    return title if envs == PLACES.get(title, envs) else envs[0]


def methods(conditions: Sequence[Condition], envs: Sequence[str], model: str) -> list[str]:
    """What was played there, by `ConditionName.method`."""
    return sorted(
        {
            condition.condition_name.method
            for condition in conditions
            if condition.condition_name.env in envs and condition.condition_name.model == model
        }
    )


def curve(
    conditions: Sequence[Condition], envs: Sequence[str], method: str, model: str, measure: str
) -> Curve:
    """A measure's means and deviations over seeds, averaged over environments where each has a checkpoint.

    Args:
        measure: a column of `RunResult.checkpoints`.
    """
    found = [
        condition
        for env in envs
        for condition in conditions
        if (condition.condition_name.env, condition.condition_name.method, condition.condition_name.model)
        == (env, method, model)
    ]
    runs = [run.path for condition in found for run in condition.runs]
    if len(found) < len(envs):
        return Curve({}, runs)
    parts = [condition.spread(measure) for condition in found]
    common = sorted(set.intersection(*map(set, parts)))
    return Curve({point: average([part[point] for part in parts]) for point in common}, runs)


def frontier(points: Mapping[str, tuple[float, float]]) -> list[str]:
    """Which of some (cost, score) no other one beats in both, from the cheapest on."""
    best: list[str] = []
    for name, (_, score) in sorted(points.items(), key=lambda each: (each[1][0], -each[1][1])):
        if not best or score > points[best[-1]][1]:
            best.append(name)
    return best
