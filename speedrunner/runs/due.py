"""Find the unfinished part of a run's plan."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from envs import Task
from speedrunner.runs.plan import Step, Wake, step_key
from speedrunner.store.records import EpisodeRow
from speedrunner.store.run_data import RunData


@dataclass(frozen=True)
class Due:
    """An unfinished step, with the unfinished tasks of a wake or an evaluation."""

    step: Step
    tasks: dict[str, Task] = field(default_factory=dict)


def unfinished_steps(
    steps: Iterable[Step],
    run: RunData,
    *,
    retry_faults: bool = False,
    rows: Sequence[EpisodeRow] | None = None,
) -> list[Due]:
    """Return the unfinished steps of a plan, in order.

    Args:
        retry_faults: whether to repeat episodes that ended by an infrastructure error: held-out ones, and
            those of a batch that no sleep has used.
        rows: the finished episodes, if they are not `run.episodes`.

    A task with a valid training rollout is never used for training again.
    """
    finished, policies = set(run.state.finished), run.policies.versions()
    rows = run.episodes if rows is None else rows
    is_fault = {row.episode: row.termination.is_fault for row in rows}
    trained = trained_tasks(rows)
    found: list[Due] = []
    for step in steps:
        is_finished = step_key(step) in finished
        again = retry_faults and not (isinstance(step, Wake) and step.batch + 1 in policies)
        tasks = {
            episode: task
            for episode, task in step.tasks.items()
            if (again and is_fault.get(episode)) or (not is_finished and episode not in is_fault)
        }
        if isinstance(step, Wake) and (twice := trained.intersection(tasks.values())):
            raise AssertionError(f"training tasks were assigned twice: {twice}")
        if tasks or not is_finished:
            found.append(Due(step, tasks))
    return found


def trained_tasks(rows: Iterable[EpisodeRow]) -> set[Task]:
    """Return the tasks used for training; a task may be repeated after an infrastructure error."""
    return {row.task for row in rows if row.phase == "train" and not row.termination.is_fault}
