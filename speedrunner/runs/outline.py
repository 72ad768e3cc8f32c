"""Describe what runs would do, by condition, before anything starts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from speedrunner.config.names import identify_condition
from speedrunner.plain.console import align_columns
from speedrunner.runs.plan import Evaluate, Sleep
from speedrunner.runs.planned_runs import PlannedRun, list_unfinished


class Outline(msgspec.Struct, frozen=True):
    """What the unfinished ones of some runs would do.

    Attributes:
        runs: number of unfinished runs.
        finished: number of finished runs.
        episodes, sleeps: number of unfinished ones.
        requests: maximum number, without that of sleeps that have no limit. Infrastructure errors are left
            out, after which a held-out episode is retried once.
        unlimited: methods with such sleeps.
        notes: lines about these runs.
    """

    runs: int = 0
    finished: int = 0
    episodes: int = 0
    sleeps: int = 0
    requests: int = 0
    unlimited: list[str] = []
    notes: list[str] = []

    def __add__(self, other: Outline) -> Outline:
        """Return the outline of the runs of both."""
        return Outline(*(getattr(self, name) + getattr(other, name) for name in self.__struct_fields__))


def outline_runs(runs: Iterable[PlannedRun]) -> dict[str, Outline]:
    """Return the outline of each condition, in the order of the runs, then that of all together (`all`).

    Raises:
        InvalidPlan: a run requests more tasks than there are.
        RunDirectoryError: a directory contains something else, or was played with something that has
            changed; or an initial policy does not exist.
    """
    outlines: dict[str, Outline] = {}
    for run in runs:
        condition = str(identify_condition(run.setup.config))
        outlines[condition] = outlines.get(condition, Outline()) + _outline_run(run)
    return outlines | {"all": sum(outlines.values(), Outline())}


def describe_plan(runs: Iterable[PlannedRun]) -> Iterator[str]:
    """Yield a table with a row for each condition and their totals, then notes. Raises as `outline_runs`."""
    outlines = outline_runs(runs)
    rows = [["", "runs", "episodes", "sleeps", "requests at most"]]
    for condition, outline in outlines.items():
        if condition != "all" or len(outlines) > 2:
            counts = [f"{count:,}" for count in (outline.runs, outline.episodes, outline.sleeps)]
            rows.append([condition, *counts, f"{outline.requests:,}{' +' if outline.unlimited else ''}"])
    yield from align_columns(rows)
    together = outlines["all"]
    if together.finished:
        yield f"{together.finished} of {together.finished + together.runs} runs are finished and not counted."
    if together.unlimited:
        methods = ", ".join(dict.fromkeys(together.unlimited))
        yield f"+: and those of sleeps, which have no limit ({methods})."
    yield from dict.fromkeys(together.notes)


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
        runs=int(bool(left)),
        finished=int(not left),
        episodes=episodes,
        sleeps=sleeps,
        requests=requests,
        unlimited=[config.method.name] if sleeps and not limit else [],
        notes=notes if left else [],
    )
