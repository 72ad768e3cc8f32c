"""Series for figures: values by condition, over training rollouts or at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from speedrunner.results.conditions import FAMILIES, Condition, Spread, average

PLACES: dict[str, tuple[str, ...]] = {
    "Crafter": ("crafter",),
    "ScienceWorld": FAMILIES,
    "BabyAI": ("babyai",),
}
"""The paper's columns, and the environments that each averages."""


class Curve(msgspec.Struct, frozen=True):
    """Values of one condition over its checkpoints.

    Attributes:
        points: by rollouts before the checkpoint.
        runs: paths of the runs behind it.
    """

    points: dict[int, Spread]
    runs: list[str]

    @property
    def last(self) -> Spread | None:
        """Return the value at the last checkpoint."""
        return self.points[max(self.points)] if self.points else None


def places(conditions: Sequence[Condition]) -> dict[str, tuple[str, ...]]:
    """Return the paper's columns that were played, then other environments. A column appears if any of its
    environments was played, and averages those."""
    played = {condition.condition_name.env for condition in conditions}
    found = {title: tuple(env for env in envs if env in played) for title, envs in PLACES.items()}
    known = {env for envs in PLACES.values() for env in envs}
    found |= {env: (env,) for env in sorted(played - known)}
    return {_title(title, envs): envs for title, envs in found.items() if envs}


def _title(title: str, envs: tuple[str, ...]) -> str:
    return title if envs == PLACES.get(title, envs) else envs[0]


def methods(conditions: Sequence[Condition], envs: Sequence[str], model: str) -> list[str]:
    """Return the played methods, by `ConditionName.method`."""
    names = (condition.condition_name for condition in conditions)
    return sorted({each.method for each in names if each.env in envs and each.model == model})


def curve(
    conditions: Sequence[Condition], envs: Sequence[str], method: str, model: str, measure: str
) -> Curve:
    """Return a measure's means and deviations over seeds, averaged over environments at their common
    checkpoints.

    Args:
        measure: a column of `RunResult.checkpoints`.
    """
    wanted = [(env, method, model) for env in envs]
    found = [condition for names in wanted for condition in conditions if condition.names == names]
    runs = [run.path for condition in found for run in condition.runs.values()]
    if len(found) < len(envs):
        return Curve({}, runs)
    parts = [condition.spread(measure) for condition in found]
    common = sorted(set.intersection(*map(set, parts)))
    return Curve({point: average([part[point] for part in parts]) for point in common}, runs)


def frontier(points: Mapping[str, tuple[float, float]]) -> list[str]:
    """Return the names on the Pareto frontier of (cost, score) points, the cheapest first."""
    best: list[str] = []
    for name, (_, score) in sorted(points.items(), key=lambda each: (each[1][0], -each[1][1])):
        if not best or score > points[best[-1]][1]:
            best.append(name)
    return best
