"""Plan a run: a pure function of its configuration and tasks (Algorithm 1, Appendix A.2)."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from envs import Split, Task
from speedrunner.config.schema import RunConfig
from speedrunner.store.run_data import RunData
from speedrunner.store.stored_run import sleep_key


class InvalidPlan(Exception):
    """A run requests more tasks than its environment has, or one task twice."""


class Wake(msgspec.Struct, frozen=True, tag="wake"):
    """Play training tasks with one policy. `tasks` has the episode keys, in the split's order."""

    batch: int
    policy: int
    tasks: dict[str, Task]

    @property
    def first(self) -> int:
        """Return the number of training episodes before it."""
        return min(int(key.rpartition("/")[2]) for key in self.tasks)


class Sleep(msgspec.Struct, frozen=True, tag="sleep"):
    """Turn policy `number - 1` into policy `number`, after `rollouts` new training rollouts."""

    number: int
    rollouts: int

    @property
    def tasks(self) -> dict[str, Task]:
        """Return no episodes: a sleep plays only what its method asks for."""
        return {}


class Evaluate(msgspec.Struct, frozen=True, tag="evaluate"):
    """Play held-out tasks with one policy, after `checkpoint` training rollouts."""

    checkpoint: int
    policy: int
    tasks: dict[str, Task]


Step = Wake | Sleep | Evaluate


def step_name(step: Step) -> str:
    """Return the name of a step for people and files."""
    match step:
        case Wake():
            return f"wake/{step.batch:04d}"
        case Sleep():
            return sleep_key(step.number)
        case Evaluate():
            return f"evaluate/{step.checkpoint:04d}"


def step_key(step: Step) -> str:
    """Return name and content of a step, so that a finished one is not mistaken for another with the same
    name."""
    return f"{step_name(step)}-{hashlib.sha256(msgspec.json.encode(step)).hexdigest()[:12]}"


def plan_run(split: Split, run: RunConfig, *, trains: bool) -> list[Step]:
    """List the steps of a run in order. Raises `InvalidPlan`.

    A sleep follows every `run.sleep_every` rollouts and the last one. The checkpoint at n rollouts evaluates
    the newest policy that was made from at most n of them. A method that does not train is evaluated at the
    same checkpoints with its only policy.
    """
    rollouts = run.rollouts if trains else 0
    if not (rollouts or run.checkpoints):
        raise InvalidPlan(
            "there is nothing to play: set run.test_episodes, or run.rollouts of a method that trains"
        )
    for name, wanted, there in (
        ("run.rollouts", rollouts, len(split.train)),
        ("run.test_episodes", run.test_episodes, len(split.test)),
    ):
        if wanted > there:
            raise InvalidPlan(f"{name}={wanted}, but the split has only {there} of these tasks: lower it")
    test = split.test[: run.test_episodes]
    twice = [task for task, times in Counter(split.train + split.test).items() if times > 1]
    if twice:
        raise InvalidPlan(
            f"the environment's split has {twice[0]} twice: a task can occur once, in training or held out"
        )

    def evaluation(checkpoint: int, policy: int) -> Evaluate:
        keys = {f"test/{checkpoint:04d}/{number:04d}": task for number, task in enumerate(test)}
        return Evaluate(checkpoint, policy, keys)

    if not trains:
        return [evaluation(checkpoint, 0) for checkpoint in run.checkpoints]
    steps: list[Step] = []
    starts = range(0, rollouts, run.sleep_every)
    for batch, start in enumerate([*starts, rollouts]):
        end = min(start + run.sleep_every, rollouts)
        # Policy `batch` is made from `start` rollouts and used until the next sleep.
        until = end if start < rollouts else rollouts + 1
        steps += [evaluation(c, batch) for c in run.checkpoints if start <= c < until]
        if start < rollouts:
            tasks = {f"train/{number:04d}": split.train[number] for number in range(start, end)}
            steps += [Wake(batch, batch, tasks), Sleep(batch + 1, len(tasks))]
    return steps


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
) -> list[Due]:
    """Return the unfinished steps of a plan, in order.

    Args:
        retry_faults: whether to repeat episodes that ended by an infrastructure error: held-out ones, and
            those of a batch that no sleep has used.
    """
    finished, policies = set(run.state.finished), run.policies.versions()
    # After a kill a row may be missing until the run is opened; `run.episodes` would read all episodes.
    is_fault = {row.episode: row.termination.is_fault for row in run.rows}
    unfinished: list[Due] = []
    for step in steps:
        is_finished = step_key(step) in finished
        again = retry_faults and not (isinstance(step, Wake) and step.batch + 1 in policies)
        tasks = {
            episode: task
            for episode, task in step.tasks.items()
            if (again and is_fault.get(episode)) or (not is_finished and episode not in is_fault)
        }
        if tasks or not is_finished:
            unfinished.append(Due(step, tasks))
    return unfinished
