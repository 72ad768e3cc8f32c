"""Describe what a run would do, before anything starts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from speedrunner.runs.continuation import check_configuration
from speedrunner.runs.plan import Due, Evaluate, Sleep, Wake, unfinished_steps
from speedrunner.runs.run import identify_process
from speedrunner.runs.setup import Setup
from speedrunner.store.run_data import load

_FORMAT = "{:10}{:>8}{:>10}{:>19}{:>11}"

KINDS = {"wake": Wake, "evaluate": Evaluate, "sleep": Sleep}
"""The kinds of steps, in the order in which they are shown."""


class Work(msgspec.Struct, frozen=True):
    """Unfinished steps of one kind.

    Attributes:
        steps, episodes: their number; sleeps have no episodes.
        calls: maximum number of requests of an episode or of a sleep; `None` for sleeps that the method does
            not limit.
        requests: maximum number of requests of all steps; `None` if it has no limit. Infrastructure errors
            are left out, after which a held-out episode is retried once.
    """

    steps: int
    episodes: int
    calls: int | None
    requests: int | None


class Outline(msgspec.Struct, frozen=True):
    """What a run would do.

    Attributes:
        work: unfinished steps by kind, in the order of `KINDS`.
        finished, of: finished steps and all steps of a run that has started; both 0 for a new run.
        extension: the change of `run.rollouts` that extends a run that has started; empty for none.
        notes: lines about its end and about steps that repeat others.
    """

    work: dict[str, Work]
    finished: int
    of: int
    extension: str
    notes: list[str]

    @property
    def steps(self) -> int:
        """Return the number of unfinished steps."""
        return sum(each.steps for each in self.work.values())

    @property
    def episodes(self) -> int:
        """Return the number of episodes in unfinished steps."""
        return sum(each.episodes for each in self.work.values())

    @property
    def requests(self) -> int:
        """Return the maximum number of requests of all limited steps."""
        return sum(each.requests or 0 for each in self.work.values())

    @property
    def is_limited(self) -> bool:
        """Return whether all steps have a maximum number of requests."""
        return all(each.requests is not None for each in self.work.values())


def plan_work(setup: Setup, after: str | None = None) -> Outline:
    """Return what a run would do.

    Args:
        after: the run that is played first and provides the initial policy.

    Raises:
        InvalidPlan: it requests more tasks than there are.
        RunDirectoryError: the directory contains something else, or was played with something that has
            changed; or the initial policy does not exist.
    """
    config, path, plan = setup.config, Path(setup.config.run.dir), setup.plan()
    left = [Due(step, step.tasks) for step in plan]
    finished = of = 0
    extension, notes = "", []
    if (path / "config.yaml").exists():
        stored = load(path)
        extension = check_configuration(stored, setup) or ""
        identify_process(stored, setup, lambda line: None)
        plan = setup.plan()
        left = unfinished_steps(plan, stored, retry_faults=config.run.retry_faults)
        finished, of = len(plan) - len(left), len(plan)
    elif after is None:
        setup.initial_policy()  # raises if it does not exist
    checkpoints = sum(isinstance(step, Evaluate) for step in plan)
    if not setup.method.trains and checkpoints > 1:
        notes.append(
            f"{config.method.name} does not learn: its only policy is evaluated again at each of the"
            f" {checkpoints} checkpoints, as in the paper; run.rollouts=0 evaluates it once."
        )
    return Outline(_work(setup, left), finished, of, extension, notes)


def outline(setup: Setup) -> Iterator[str]:
    """Yield lines for people: a run's unfinished steps, the maximum of episodes and requests, and notes.

    Raises the errors of `plan_work`.
    """
    config = setup.config
    found = plan_work(setup)
    yield f"{Path(config.run.dir)}: {config.method.name} on {config.env.name} with {setup.model_config.name}"
    if found.extension:
        yield f"it is extended: {found.extension}"
    if found.of:
        yield f"it exists; {found.finished} of its {found.of} steps are finished; remaining:"
    yield _FORMAT.format("at most", "steps", "episodes", "LLM calls of each", "in all")
    for kind, work in found.work.items():
        calls = "not known" if work.calls is None else work.calls
        requests = "-" if work.requests is None else work.requests
        yield _FORMAT.format(kind, work.steps, work.episodes or "-", calls, requests)
    yield _FORMAT.format("all", found.steps, "", "", found.requests if found.is_limited else "not known")
    yield from found.notes


def _work(setup: Setup, left: list[Due]) -> dict[str, Work]:
    actor, sleep = setup.model_config.role("actor"), setup.method.sleep_calls
    of_episode = actor.calls(setup.env.limits.llm_calls)
    of_sleep = sleep and setup.inducer_model_config.role("inducer").calls(sleep)
    found = {}
    for name, kind in KINDS.items():
        steps = [each for each in left if isinstance(each.step, kind)]
        episodes = sum(len(each.tasks) for each in steps)
        calls, count = (of_sleep, len(steps)) if kind is Sleep else (of_episode, episodes)
        found[name] = Work(len(steps), episodes, calls, (calls or 0) * count if calls or not count else None)
    return found
