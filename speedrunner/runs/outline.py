"""Describe what runs would do, by condition, before anything starts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from speedrunner.config.names import ConditionName, condition_name
from speedrunner.runs.plan import Evaluate, Sleep
from speedrunner.runs.planned_runs import PlannedRun, list_unfinished


class Outline(msgspec.Struct, frozen=True):
    """What the unfinished runs of one condition, or of several, would do.

    Attributes:
        condition: its name; `None` for all conditions together.
        runs: number of unfinished runs.
        finished: number of finished runs.
        episodes, sleeps: number of unfinished ones.
        requests: maximum number, without that of sleeps that have no limit. Infrastructure errors are left
            out, after which a held-out episode is retried once.
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


def outline_runs(runs: Iterable[PlannedRun]) -> list[Outline]:
    """Return the outline of each condition, in the order of the runs, then that of all together.

    Raises:
        InvalidPlan: a run requests more tasks than there are.
        RunDirectoryError: a directory contains something else, or was played with something that has
            changed; or an initial policy does not exist.
    """
    planned: dict[ConditionName | None, list[Outline]] = {}
    for run in runs:
        outline = _outline_run(run)
        planned.setdefault(outline.condition, []).append(outline)
    planned[None] = [outline for outlines in planned.values() for outline in outlines]
    return [_sum_up(condition, outlines) for condition, outlines in planned.items()]


def _outline_run(planned: PlannedRun) -> Outline:
    setup, config, plan = planned.setup, planned.setup.config, planned.setup.plan()
    left, extension = list_unfinished(planned)
    notes = [f"{planned.path} is extended: {extension}."] if extension else []
    models = (setup.model_config, setup.inducer_model_config)
    notes += [f"{risk}: run `speedrunner bench replay`." for model in models if (risk := model.cache_risk)]
    checkpoints = sum(isinstance(step, Evaluate) for step in plan)
    if not setup.method.trains and checkpoints > 1:
        notes.append(
            f"{config.method.name} does not learn: its only policy is evaluated again at each of the"
            f" {checkpoints} checkpoints, as in the paper; run.rollouts=0 evaluates it once."
        )
    episodes = sum(len(due.tasks) for due in left)
    sleeps = sum(isinstance(due.step, Sleep) for due in left)
    limit = setup.method.sleep_calls
    requests = episodes * setup.env.limits.llm_calls
    if limit:
        requests += sleeps * setup.inducer_model_config.role("inducer").calls(limit)
    return Outline(
        condition=condition_name(config),
        runs=int(bool(left)),
        finished=int(not left),
        episodes=episodes,
        sleeps=sleeps,
        requests=requests,
        unlimited=[config.method.name] if sleeps and not limit else [],
        notes=notes if left else [],
    )


def _sum_up(condition: ConditionName | None, outlines: Sequence[Outline]) -> Outline:
    return Outline(
        condition=condition,
        runs=sum(outline.runs for outline in outlines),
        finished=sum(outline.finished for outline in outlines),
        episodes=sum(outline.episodes for outline in outlines),
        sleeps=sum(outline.sleeps for outline in outlines),
        requests=sum(outline.requests for outline in outlines),
        unlimited=list(dict.fromkeys(name for outline in outlines for name in outline.unlimited)),
        notes=list(dict.fromkeys(note for outline in outlines for note in outline.notes)),
    )
