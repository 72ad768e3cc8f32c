"""Which runs count for the paper's claims: those with the limits and the schedule of the claims' experiments.

These are the values of `preset=paper`, which each of the experiments has, and no limit of LLM calls below the
environment's. Evaluations of stored policies have no schedule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from speedrunner.config.compose import group_file
from speedrunner.config.schema import Config, to_mapping
from speedrunner.plain.plain_records import flat
from speedrunner.plain.plain_yaml import read_yaml_file
from speedrunner.results.conditions import Condition
from speedrunner.results.run_result import RunResult
from speedrunner.store.records import Process

SCHEDULE = ("run.rollouts", "run.sleep_every", "run.eval_every")
CALLS = ("model.actor.max_calls", "model.inducer.max_calls")


@cache
def _experiment_values() -> dict[str, Any]:
    values: dict[str, Any] = read_yaml_file(group_file("preset", "paper"))
    return values | dict.fromkeys(CALLS)


def list_other_limits(config: Config, processes: Sequence[Process] = ()) -> list[str]:
    """Return the limits and parts of the schedule in which a run differs from the claims' experiments, each
    with the experiments' value: `run.rollouts=4 (200)`."""
    own = flat(to_mapping(config))
    if CALLS[0] not in own and processes:  # the model config can have a limit, too
        own[CALLS[0]] = processes[-1].model.role("actor").max_calls
    evaluates = config.run.start_from is not None and config.run.rollouts == 0
    return [
        f"{key}={own[key]} ({'the default' if value is None else value})"
        for key, value in _experiment_values().items()
        if own.get(key) != value and not (evaluates and key in SCHEDULE)
    ]


def keep_counting(conditions: Sequence[Condition]) -> list[Condition]:
    """Return the conditions that have runs that count for claims, with these."""

    def counts(run: RunResult) -> bool:
        return not list_other_limits(run.config, run.processes)

    counting = [
        replace(each, runs={seed: run for seed, run in each.runs.items() if counts(run)})
        for each in conditions
    ]
    return [each for each in counting if each.runs]


def note_left_out(conditions: Sequence[Condition]) -> list[str]:
    """Return a line for each condition and each set of its limits with which runs do not count for claims."""
    lines = dict.fromkeys(
        f"{each.identity} does not count for the paper's claims: {', '.join(limits)}"
        for each in conditions
        for run in each.runs.values()
        if (limits := list_other_limits(run.config, run.processes))
    )
    return [*lines]
