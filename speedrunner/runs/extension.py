"""Extend a run to more training rollouts, if the longer plan begins with the whole shorter one."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from speedrunner.config.schema import Config, differences
from speedrunner.runs.moved_settings import settings_here
from speedrunner.runs.setup import Setup
from speedrunner.store.run_data import RunData
from speedrunner.store.stored_run import RunDirectoryError


def extend_config(config: Config, rollouts: int) -> Config:
    """Return a run's configuration with another number of rollouts."""
    run = msgspec.structs.replace(config.run, rollouts=rollouts)
    return msgspec.structs.replace(config, run=run)


def find_extension(run: RunData, setup: Setup) -> str | None:
    """Return the change, such as `run.rollouts: 20 -> 40`, if a configuration only extends a stored run.

    `None`: the configuration is the same, or differs in something else.

    Raises:
        RunDirectoryError: the longer run would not contain the shorter one.
        InvalidPlan: the environment has too few training tasks.
    """
    before, after = run.settings, setup.config
    if after.run.rollouts <= before.run.rollouts:
        return None
    if differences(extend_config(settings_here(run, setup), after.run.rollouts), after):
        return None
    if reason := _find_obstacle(run, setup):
        raise RunDirectoryError(
            f"{run.path} cannot be extended to {after.run.rollouts} rollouts: {reason}; continue in another"
            f" run: run.start_from={run.path} run.dir=NEW"
        )
    return f"run.rollouts: {before.run.rollouts} -> {after.run.rollouts}"


def _find_obstacle(run: RunData, setup: Setup) -> str | None:
    """Return why a longer run would not contain the shorter one; `None` if it would."""
    old = run.settings.run
    if (end := run.training_end) is not None:
        return f"run.budget_tokens={old.budget_tokens} ended its training after {end.rollouts} rollouts"
    if setup.carries_history and not old.rollouts:
        return "it evaluates a stored policy and has no copy of the training history"
    short = replace(setup, config=extend_config(setup.config, old.rollouts)).plan()
    if setup.plan()[: len(short)] == short:
        return None
    for name, each in (("eval_every", old.eval_every), ("sleep_every", old.sleep_every)):
        if old.rollouts % each:
            return f"run.rollouts={old.rollouts} is not a multiple of run.{name}={each}"
    return "its sleeps use the training tasks that follow those of its rollouts"
