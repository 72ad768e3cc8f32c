"""Episodes that a method plays in its sleep."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import msgspec

from envs import Task
from speedrunner.agents.actor import ActorSpec
from speedrunner.methods.method_base import Method, MethodBroke, class_name
from speedrunner.store.history import visible
from speedrunner.store.records import Trajectory
from speedrunner.store.sleep_journal import SleepJournal


@dataclass
class SleepEpisodes:
    """The episodes of one sleep, for `SleepTools.attempt`.

    Attributes:
        allowed: training tasks so far, which may be played any number of times.
        journal: has the episodes that another process played; they are not played again.
        start: plays the sleep's episode of this number, from 0.
        played: all of them, faulty ones included.
    """

    method: Method
    allowed: set[Task]
    journal: SleepJournal
    start: Callable[[int, Task, ActorSpec], Awaitable[Trajectory]]
    played: list[Trajectory] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._numbers = itertools.count()

    async def play(self, task: Task, spec: ActorSpec) -> Trajectory:
        """Play a task, again after an infrastructure error, which says nothing about the policy.

        Raises:
            MethodBroke: the method may not play this task.
            EpisodeBroke: two infrastructure errors.
        """
        if task not in self.allowed:
            raise MethodBroke(
                f"{class_name(self.method)}: sleep asked for {task}, which it may not play; choose another"
                " task"
            )
        number = next(self._numbers)
        if (played := self.journal.episode(number)) is not None:
            self.played.append(played)
        else:
            played = await self._play_twice(number, task, spec)
        return msgspec.structs.replace(played, outcome=visible(played.outcome, self.method.sees))

    async def _play_twice(self, number: int, task: Task, spec: ActorSpec) -> Trajectory:
        for _ in range(2):
            played = await self.start(number, task, spec)
            self.played.append(played)
            if not played.termination.is_fault:
                self.journal.add_episode(number, played)
                return played
        raise EpisodeBroke(played)


class EpisodeBroke(Exception):
    """An episode of a sleep ended by an infrastructure error twice; `played` is the second try."""

    def __init__(self, played: Trajectory) -> None:
        super().__init__(played.episode)
        self.played = played
