"""Describe what a sweep would do, by condition, before anything starts."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from speedrunner.config.names import ConditionName, condition_name
from speedrunner.experiments.sweep_members import Member
from speedrunner.runs.outline import Outline, plan_work


class ConditionOutline(msgspec.Struct, frozen=True):
    """What the unfinished runs of one condition, or of several, would do.

    Attributes:
        condition: its name; `None` for all conditions together.
        runs: number of unfinished runs.
        finished: number of finished runs.
        episodes, sleeps: number of unfinished ones.
        requests: maximum number, without that of sleeps that have no limit.
        unlimited: methods with such sleeps.
        notes: lines about these runs.
    """

    condition: ConditionName | None
    runs: int
    finished: int
    episodes: int
    sleeps: int
    requests: int
    unlimited: list[str]
    notes: list[str]


def outline_conditions(members: Sequence[Member]) -> list[ConditionOutline]:
    """Return the outline of each condition, in the order of the runs, then that of all together.

    Raises the errors of `plan_work`.
    """
    planned: dict[ConditionName, list[tuple[Member, Outline]]] = {}
    for each in members:
        name = condition_name(each.setup.config)
        planned.setdefault(name, []).append((each, plan_work(each.setup, each.run.after)))
    everything = [pair for pairs in planned.values() for pair in pairs]
    found = [_sum_up(name, pairs) for name, pairs in planned.items()]
    return [*found, _sum_up(None, everything)]


def _sum_up(name: ConditionName | None, pairs: Sequence[tuple[Member, Outline]]) -> ConditionOutline:
    left = [(member, outline) for member, outline in pairs if outline.steps]
    unlimited = [member.setup.config.method.name for member, outline in left if not outline.is_limited]
    return ConditionOutline(
        condition=name,
        runs=len(left),
        finished=len(pairs) - len(left),
        episodes=sum(outline.episodes for _, outline in left),
        sleeps=sum(outline.work["sleep"].steps for _, outline in left),
        requests=sum(outline.requests for _, outline in left),
        unlimited=list(dict.fromkeys(unlimited)),
        notes=list(dict.fromkeys(note for _, outline in left for note in outline.notes)),
    )
