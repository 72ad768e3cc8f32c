"""The run that is verified, and what its configuration names."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Literal, get_args

import msgspec

from speedrunner.agents.actor import ActorSpec
from speedrunner.config.schema import from_yaml
from speedrunner.runs.setup import set_up
from speedrunner.store.data import RunData
from speedrunner.store.records import Phase, Policy, Trajectory
from speedrunner.store.stored_run import StoredRun


class Played(msgspec.Struct, frozen=True):
    """A recorded episode. `number` is of its batch, its checkpoint, or the sleep that has played it."""

    trajectory: Trajectory
    phase: Phase | Literal["sleep"]
    number: int


class Subject:
    """A run that is verified.

    Attributes:
        data: its records.
        process: what played it last, as far as that is recorded.
        setup: what its configuration names, with the model cards that it was played with.

    Raises:
        StorageError, InvalidConfig: it cannot be read.
        EnvironmentFault, UnknownMethod, InvalidMethodOption, InvalidCard: what it names does not exist here.
        SandboxUnavailable: skills cannot be isolated on this machine.
    """

    def __init__(self, directory: StoredRun) -> None:
        self.directory = directory
        self.data = RunData(directory)
        self.process = next(reversed(directory.processes()), None)
        cards = None
        if self.process is not None:
            actor, inducer = self.process.actor, self.process.inducer
            cards = actor, actor if inducer == actor else inducer
        self.setup = set_up(from_yaml(directory.config() or ""), cards)
        self.policy = cache(directory.policies.load)

    def episodes(self) -> Iterator[Played]:
        """All recorded episodes, every attempt that ended: those of batches, evaluations, sleeps."""
        for phase in get_args(Phase):
            for number in self.directory.numbers(phase):
                for each in self.directory.played(phase, number):
                    yield Played(each, phase, number)
        for record in self.data.sleeps:
            for each in record.attempts:
                yield Played(each, "sleep", record.sleep)

    def spec(self, played: Played) -> ActorSpec:
        """What the method gives the actor of an episode. Raises `InvalidPolicy`."""
        setup, episode = self.setup, played.trajectory
        policy: Policy = self.policy(episode.policy)
        training = played.phase == "train"
        spec = setup.method.agent(policy, episode.task, setup.env, training=training)
        return spec.last_visible(setup.config.library.visible_last)
