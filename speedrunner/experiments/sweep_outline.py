"""Describe what a sweep would do, by condition, before anything starts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from speedrunner.config.names import ConditionName, condition_name
from speedrunner.experiments.status import run_status
from speedrunner.experiments.sweep_members import Member
from speedrunner.results.ledger import run_costs
from speedrunner.results.pricing import price_book
from speedrunner.runs.outline import Outline, plan_work
from speedrunner.store.discovery import DAMAGED, runs_below
from speedrunner.store.run_data import load


class Estimate(msgspec.Struct, frozen=True):
    """What unfinished runs will take, scaled from finished runs of the same environments and models.

    Attributes:
        gpu_hours: the engines' seconds, times their GPUs; `None` if a run's engine time is unknown.
        usd: by each finished run's own prices; `None` if one is unknown.
        sources: names of the finished runs.
    """

    gpu_hours: float | None
    usd: float | None
    sources: list[str]


class ConditionOutline(msgspec.Struct, frozen=True):
    """What the unfinished runs of one condition, or of several, would do.

    Attributes:
        condition: its name; `None` for all conditions together.
        runs: number of unfinished runs.
        finished: number of finished runs.
        episodes, sleeps: number of unfinished ones.
        requests: maximum number, without that of sleeps that have no limit.
        unlimited: methods with such sleeps.
        estimate: what the unfinished runs will take; `None` if one has no finished run to scale from.
        notes: lines about these runs.
    """

    condition: ConditionName | None
    runs: int
    finished: int
    episodes: int
    sleeps: int
    requests: int
    unlimited: list[str]
    estimate: Estimate | None
    notes: list[str]


class Finished(msgspec.Struct, frozen=True):
    """What a finished run took.

    Attributes:
        name: name of its folder.
        condition: its condition.
        episodes: number of its training and test episodes.
        gpu_hours, usd: see `Estimate`.
    """

    name: str
    condition: ConditionName
    episodes: int
    gpu_hours: float | None
    usd: float | None


def outline_conditions(members: Sequence[Member]) -> list[ConditionOutline]:
    """Return the outline of each condition, in the order of the runs, then that of all together.

    Raises the errors of `plan_work`.
    """
    finished = find_finished({Path(each.path).parent for each in members})
    planned: dict[ConditionName, list[tuple[Member, Outline]]] = {}
    for each in members:
        name = condition_name(each.setup.config)
        planned.setdefault(name, []).append((each, plan_work(each.setup, each.run.after)))
    everything = [pair for pairs in planned.values() for pair in pairs]
    found = [_sum_up(name, pairs, finished) for name, pairs in planned.items()]
    return [*found, _sum_up(None, everything, finished)]


def find_finished(folders: Iterable[Path]) -> list[Finished]:
    """Return what the finished runs in some folders took. Runs that cannot be read or priced are left out."""
    found = []
    for path in (path for folder in folders if folder.exists() for path in runs_below(folder)):
        if run_status(path).state != "finished":
            continue
        try:
            run = load(path)
            (costs,) = run_costs([run], [price_book(run)])
        except DAMAGED:
            continue
        seconds, actor = costs.total.engine_s, run.processes[-1].actor
        found.append(
            Finished(
                name=path.name,
                condition=condition_name(run.settings),
                episodes=len(run.episodes),
                gpu_hours=None if seconds is None else seconds / 3600 * actor.gpus * actor.replicas,
                usd=None if costs.unpriced else costs.total.usd,
            )
        )
    return found


def estimate(condition: ConditionName, episodes: int, finished: Sequence[Finished]) -> Estimate | None:
    """Scale a finished run of the same environment and model, of the same method if there is one, to a number
    of episodes. `None`: there is no such run."""
    alike = [
        each
        for each in finished
        if (each.condition.env, each.condition.model) == (condition.env, condition.model) and each.episodes
    ]
    if not alike:
        return None
    source = max(alike, key=lambda each: each.condition == condition)
    share = episodes / source.episodes
    hours, usd = (amount and amount * share for amount in (source.gpu_hours, source.usd))
    return Estimate(hours, usd, [source.name])


def _sum_up(
    name: ConditionName | None, pairs: Sequence[tuple[Member, Outline]], finished: Sequence[Finished]
) -> ConditionOutline:
    left = [(member, outline) for member, outline in pairs if outline.steps]
    unlimited = [member.setup.config.method.name for member, outline in left if not outline.is_limited]
    estimates = [
        estimate(condition_name(member.setup.config), outline.episodes, finished) for member, outline in left
    ]
    return ConditionOutline(
        condition=name,
        runs=len(left),
        finished=len(pairs) - len(left),
        episodes=sum(outline.episodes for _, outline in left),
        sleeps=sum(outline.work["sleep"].steps for _, outline in left),
        requests=sum(outline.requests for _, outline in left),
        unlimited=list(dict.fromkeys(unlimited)),
        estimate=_add(estimates),
        notes=list(dict.fromkeys(note for _, outline in left for note in outline.notes)),
    )


def _add(estimates: Sequence[Estimate | None]) -> Estimate | None:
    """Return the sum of estimates; `None` if there is none, or one is missing."""
    known = [each for each in estimates if each is not None]
    if not known or len(known) != len(estimates):
        return None
    hours = [each.gpu_hours for each in known if each.gpu_hours is not None]
    usd = [each.usd for each in known if each.usd is not None]
    return Estimate(
        sum(hours) if len(hours) == len(known) else None,
        sum(usd) if len(usd) == len(known) else None,
        list(dict.fromkeys(name for each in known for name in each.sources)),
    )
