"""Numbers as figures take them: by setting, over training rollouts or at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from speedrunner.statistics.groups import FAMILIES, Group, Spread, average, spread
from speedrunner.statistics.summary import Checkpoint

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


def places(groups: Sequence[Group]) -> dict[str, tuple[str, ...]]:
    """The paper's columns that were played, then any other environments; a column is shown as soon as one of
    the environments behind it was played, and is then the mean of those that were."""
    played = {group.setting.env for group in groups}
    found = {title: tuple(env for env in envs if env in played) for title, envs in PLACES.items()}
    known = {env for envs in PLACES.values() for env in envs}
    found |= {env: (env,) for env in sorted(played - known)}
    return {_title(title, envs): envs for title, envs in found.items() if envs}


def _title(title: str, envs: tuple[str, ...]) -> str:
    return title if envs == PLACES.get(title, envs) else envs[0]


def methods(groups: Sequence[Group], envs: Sequence[str], model: str) -> list[str]:
    """What was played there, by `Setting.method`."""
    return sorted(
        {
            group.setting.method
            for group in groups
            if group.setting.env in envs and group.setting.model == model
        }
    )


def curve(groups: Sequence[Group], envs: Sequence[str], method: str, model: str, measure: str) -> Curve:
    """A measure's means and deviations over seeds, averaged over environments where each has a checkpoint.

    Args:
        measure: of `Checkpoint.mean`, or `combat_percent`.
    """
    found = [
        group
        for env in envs
        for group in groups
        if (group.setting.env, group.setting.method, group.setting.model) == (env, method, model)
    ]
    runs = [run.path for group in found for run in group.runs]
    if len(found) < len(envs):
        return Curve({}, runs)
    points: dict[int, Spread] = {}
    for point in sorted(set.intersection(*({*group.points} for group in found))):
        parts = [spread(_value(at, measure) for _, at in group.at(point)) for group in found]
        known = [part for part in parts if part is not None]
        if len(known) == len(found):
            points[point] = average(known)
    return Curve(points, runs)


def _value(at: Checkpoint, measure: str) -> float | None:
    if measure == "combat_percent":
        return None if at.library.combat is None else 100 * at.library.combat
    return at.mean(measure)


def frontier(points: Mapping[str, tuple[float, float]]) -> list[str]:
    """Which of some (cost, score) no other one beats in both, from the cheapest on."""
    best: list[str] = []
    for name, (_, score) in sorted(points.items(), key=lambda each: (each[1][0], -each[1][1])):
        if not best or score > points[best[-1]][1]:
            best.append(name)
    return best
