"""Describe what runs would do, by condition, before anything starts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from serving.errors import ServingError
from serving.weights import is_there
from speedrunner.config.names import ConditionName, condition_name
from speedrunner.runs.continuation import check_configuration
from speedrunner.runs.plan import Due, Evaluate, Sleep, unfinished_steps
from speedrunner.runs.run import identify_process
from speedrunner.runs.setup import Setup, check_models, describe_overflow
from speedrunner.store.run_data import load


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


def outline_runs(runs: Iterable[tuple[Setup, str | None]]) -> list[Outline]:
    """Return the outline of each condition, in the order of the runs, then that of all together.

    Args:
        runs: each with the run that is played first and provides its initial policy.

    Raises:
        InvalidPlan: a run requests more tasks than there are.
        RunDirectoryError: a directory contains something else, or was played with something that has
            changed; or an initial policy does not exist.
        InvalidConfig, EnvironmentFault: the actor's first prompt does not fit, or cannot be counted.
    """
    planned: dict[ConditionName | None, list[Outline]] = {}
    for setup, after in runs:
        one = _outline_run(setup, after)
        planned.setdefault(one.condition, []).append(one)
    planned[None] = [one for ones in planned.values() for one in ones]
    return [_sum_up(condition, ones) for condition, ones in planned.items()]


def _outline_run(setup: Setup, after: str | None) -> Outline:
    config, path, plan = setup.config, Path(setup.config.run.dir), setup.plan()
    left, notes = [Due(step, step.tasks) for step in plan], list[str]()
    if (path / "config.yaml").exists():
        stored = load(path)
        if extension := check_configuration(stored, setup):
            notes.append(f"{path} is extended: {extension}.")
        identify_process(stored, setup, lambda line: None)
        left = unfinished_steps(setup.plan(), stored, retry_faults=config.run.retry_faults)
    elif after is None:
        policy = setup.initial_policy()  # raises if it does not exist
        if policy.skills and all(is_there(model_config) for model_config, _ in setup.services):
            with suppress(ServingError):  # its files may be missing here
                notes += describe_overflow(check_models(setup, policy), setup.model_config.context)
    models = (setup.model_config, setup.inducer_model_config)
    notes += [f"{risk}: run `speedrunner bench replay`." for model in models if (risk := model.cache_risk)]
    checkpoints = sum(isinstance(step, Evaluate) for step in plan)
    if not setup.method.trains and checkpoints > 1:
        notes.append(
            f"{config.method.name} does not learn: its only policy is evaluated again at each of the"
            f" {checkpoints} checkpoints, as in the paper; run.rollouts=0 evaluates it once."
        )
    episodes = sum(len(each.tasks) for each in left)
    sleeps = sum(isinstance(each.step, Sleep) for each in left)
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


def _sum_up(condition: ConditionName | None, ones: Sequence[Outline]) -> Outline:
    return Outline(
        condition=condition,
        runs=sum(one.runs for one in ones),
        finished=sum(one.finished for one in ones),
        episodes=sum(one.episodes for one in ones),
        sleeps=sum(one.sleeps for one in ones),
        requests=sum(one.requests for one in ones),
        unlimited=list(dict.fromkeys(name for one in ones for name in one.unlimited)),
        notes=list(dict.fromkeys(note for one in ones for note in one.notes)),
    )
