"""Which runs count for the paper's claims: those with the settings of the claims' experiments.

These are the values of `preset=paper`, which each of the experiments has, and the defaults of all other keys
that change results, except those in the condition's name. Evaluations of stored policies have no schedule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from speedrunner.config.compose import group_file
from speedrunner.config.schema import ClassConfig, Config, ModelOptions, RunConfig
from speedrunner.plain.plain_records import as_written
from speedrunner.plain.plain_yaml import read_yaml_file
from speedrunner.results.conditions import Condition, list_settings
from speedrunner.results.run_result import RunResult
from speedrunner.store.records import Process

SCHEDULE = ("run.rollouts", "run.sleep_every", "run.eval_every")
MAX_CALLS = "model.actor.max_calls"
ISOLATION = "sandbox.kind"
"""Depends on what a machine allows; skills do the same under each."""


@cache
def _experiment_values() -> dict[str, Any]:
    nothing = ClassConfig("-")
    usual = list_settings(Config(RunConfig("-"), nothing, nothing, ModelOptions("-")))
    paper: dict[str, Any] = read_yaml_file(group_file("preset", "paper"))
    return usual | paper


def list_other_settings(config: Config, processes: Sequence[Process] = ()) -> list[str]:
    """Return the settings in which a run differs from the claims' experiments, each with the experiments'
    value: `run.rollouts=4, not 200`. `null` is the default of a key without a value."""
    own = list_settings(config)
    if MAX_CALLS not in own and processes:  # the model config can have a limit, too
        own[MAX_CALLS] = processes[-1].model.role("actor").max_calls
    experiment = _experiment_values()
    evaluates = config.run.start_from is not None and config.run.rollouts == 0
    return [
        f"{key}={as_written(own.get(key))}, not {as_written(experiment.get(key))}"
        for key in {**experiment, **own}
        if key != ISOLATION and own.get(key) != experiment.get(key) and not (evaluates and key in SCHEDULE)
    ]


def keep_counting(conditions: Sequence[Condition]) -> list[Condition]:
    """Return the conditions that have runs that count for claims, with these."""

    def counts(run: RunResult) -> bool:
        return not list_other_settings(run.config, run.processes)

    counting = [
        replace(each, runs={seed: run for seed, run in each.runs.items() if counts(run)})
        for each in conditions
    ]
    return [each for each in counting if each.runs]


def note_left_out(conditions: Sequence[Condition]) -> list[str]:
    """Return a line for each condition and each set of settings with which its runs do not count."""
    lines = dict.fromkeys(
        f"{each.identity} does not count for the paper's claims: {'; '.join(others)}"
        for each in conditions
        for run in each.runs.values()
        if (others := list_other_settings(run.config, run.processes))
    )
    return [*lines]
