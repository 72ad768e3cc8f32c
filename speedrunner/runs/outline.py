"""Describe what a run would do, before anything starts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from speedrunner.runs.due import Due, unfinished_steps
from speedrunner.runs.plan import Evaluate, Sleep, Wake
from speedrunner.runs.run import check_configuration, identify_process
from speedrunner.runs.setup import Setup
from speedrunner.store.run_data import load

_FORMAT = "{:10}{:>8}{:>10}{:>19}{:>11}"


def outline(setup: Setup, after: str | None = None) -> Iterator[str]:
    """Yield lines for people: the run's unfinished steps, the maximum of episodes and requests (without
    infrastructure errors, after which a held-out episode is retried once), and what would be repeated.

    Args:
        after: the run that is played first and provides the initial policy.

    Raises:
        InvalidPlan: it requests more tasks than there are.
        RunDirectoryError: the directory contains something else, or was played with something that has
            changed.
    """
    config, path, plan = setup.config, Path(setup.config.run.dir), setup.plan()
    left = [Due(step, {} if isinstance(step, Sleep) else step.tasks) for step in plan]
    yield f"{path}: {config.method.name} on {config.env.name} with {setup.model_config.name}"
    if (path / "config.yaml").exists():
        stored = load(path)
        extension = check_configuration(stored, setup)
        identify_process(stored, setup, lambda line: None)
        plan = setup.plan(stored.training_end)
        left = unfinished_steps(plan, stored, retry_faults=config.run.retry_faults)
        if extension:
            yield f"it is extended: {extension}"
        yield f"it exists; {len(plan) - len(left)} of its {len(plan)} steps are finished; remaining:"
    elif after is not None:
        yield f"it starts from the newest policy of {after}"
    else:
        setup.initial_policy()  # raises if it does not exist
    actor, sleep = setup.model_config.role("actor"), setup.method.sleep_calls
    calls = {
        Wake: actor.calls(setup.env.limits.llm_calls),
        Evaluate: actor.calls(setup.env.limits.llm_calls),
        Sleep: sleep and setup.inducer_model_config.role("inducer").calls(sleep),
    }
    yield _FORMAT.format("at most", "steps", "episodes", "LLM calls of each", "in all")
    in_all: int | None = 0
    for kind, each in calls.items():
        steps = [one for one in left if isinstance(one.step, kind)]
        episodes = sum(len(one.tasks) for one in steps)
        most = None if each is None else each * (len(steps) if kind is Sleep else episodes)
        in_all = None if most is None or in_all is None else in_all + most
        cells = (episodes or "-", "not known" if each is None else each, "-" if most is None else most)
        yield _FORMAT.format(kind.__name__.lower(), len(steps), *cells)
    yield _FORMAT.format("all", len(left), "", "", "not known" if in_all is None else in_all)
    if (budget := config.run.budget_tokens) is not None:
        yield f"training ends earlier if it has used run.budget_tokens={budget} tokens."
    checkpoints = sum(isinstance(step, Evaluate) for step in plan)
    if not setup.method.trains and checkpoints > 1:
        yield (
            f"{config.method.name} does not learn: its only policy is evaluated again at each of the"
            f" {checkpoints} checkpoints, as in the paper; run.rollouts=0 evaluates it once."
        )
