"""Describe what a sweep would do, by condition, before anything starts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from speedrunner.config.names import ConditionName, condition_name
from speedrunner.experiments.forecast import count_steps
from speedrunner.experiments.sweep_members import Member
from speedrunner.results.forecast_records import Forecast, Sum, read_forecasts, total
from speedrunner.runs.outline import Outline, plan_work

TOKENS = ("uncached", "cached", "output")


class Estimate(msgspec.Struct, frozen=True):
    """What whole runs use, from their forecasts: tokens, engine hours, and requests per second of these
    hours. `None`: not every run has a forecast of it."""

    tokens: float | None = None
    engine_h: float | None = None
    requests_per_s: float | None = None


class ConditionOutline(msgspec.Struct, frozen=True):
    """What the unfinished runs of one condition, or of several, would do.

    Attributes:
        condition: its name; `None` for all conditions together.
        runs: number of unfinished runs.
        finished: number of finished runs.
        episodes, sleeps: number of unfinished ones.
        requests: maximum number, without that of sleeps that have no limit.
        unlimited: methods with such sleeps.
        estimate: what the unfinished runs use in all.
        notes: lines about these runs.
    """

    condition: ConditionName | None
    runs: int
    finished: int
    episodes: int
    sleeps: int
    requests: int
    unlimited: list[str]
    estimate: Estimate
    notes: list[str]


def outline_conditions(members: Sequence[Member]) -> list[ConditionOutline]:
    """Return the outline of each condition, in the order of the runs, then that of all together.

    Raises the errors of `plan_work`, and `StorageError` if a file of forecasts cannot be read.
    """
    forecasts = dict(_find_forecasts(members))
    planned: dict[ConditionName, list[tuple[Member, Outline]]] = {}
    for each in members:
        name = condition_name(each.setup.config)
        planned.setdefault(name, []).append((each, plan_work(each.setup, each.run.after)))
    everything = [pair for pairs in planned.values() for pair in pairs]
    found = [_sum_up(name, pairs, forecasts) for name, pairs in planned.items()]
    return [*found, _sum_up(None, everything, forecasts)]


def estimate(members: Sequence[Member]) -> Estimate:
    """Return what runs use, from forecasts of whole runs. Raises `StorageError`."""
    forecasts = dict(_find_forecasts(members))
    return _estimate(list(forecasts.values())) if len(forecasts) == len(members) else Estimate()


def _sum_up(
    name: ConditionName | None, pairs: Sequence[tuple[Member, Outline]], forecasts: dict[str, Forecast]
) -> ConditionOutline:
    left = [(member, outline) for member, outline in pairs if outline.steps]
    unlimited = [member.setup.config.method.name for member, outline in left if not outline.is_limited]
    own = [forecasts[member.path] for member, _ in left if member.path in forecasts]
    return ConditionOutline(
        condition=name,
        runs=len(left),
        finished=len(pairs) - len(left),
        episodes=sum(outline.episodes for _, outline in left),
        sleeps=sum(outline.work["sleep"].steps for _, outline in left),
        requests=sum(outline.requests for _, outline in left),
        unlimited=list(dict.fromkeys(unlimited)),
        estimate=_estimate(own) if len(own) == len(left) else Estimate(),
        notes=list(dict.fromkeys(note for _, outline in left for note in outline.notes)),
    )


def _estimate(forecasts: Sequence[Forecast]) -> Estimate:
    tokens: list[Sum | None] = [total(forecasts, measure) for measure in TOKENS]
    known = [each.mean for each in tokens if each is not None]
    seconds, requests = total(forecasts, "engine_s"), total(forecasts, "requests")
    return Estimate(
        sum(known) if len(known) == len(TOKENS) else None,
        None if seconds is None else seconds.mean / 3600,
        requests.mean / seconds.mean if requests and seconds and seconds.mean else None,
    )


def _find_forecasts(members: Sequence[Member]) -> Iterator[tuple[str, Forecast]]:
    """Yield each run's newest forecast with the same numbers of episodes and sleeps."""
    stored = {folder: read_forecasts(folder) for folder in {Path(each.path).parent for each in members}}
    for each in members:
        counts = count_steps(each.setup.plan())
        for forecast in stored[Path(each.path).parent]:  # oldest first
            if forecast.dir == each.name and forecast.counts == counts:
                yield each.path, forecast
