"""The run to verify, and everything that its configuration names."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cache, cached_property
from typing import Literal, get_args

import msgspec

from speedrunner.agents.actor import ActorSpec
from speedrunner.runs.identity import checkout
from speedrunner.runs.plan import step_key
from speedrunner.runs.stored_setup import set_up_stored
from speedrunner.store.records import Phase, Trajectory
from speedrunner.store.run_data import RunData
from speedrunner.store.stored_run import RunDirectoryError


class Played(msgspec.Struct, frozen=True):
    """A recorded episode. `number` is that of its batch, its checkpoint, or the sleep that played it."""

    trajectory: Trajectory
    phase: Phase | Literal["sleep"]
    number: int


class Subject:
    """A run to verify.

    Attributes:
        run: its records.
        process: the last process that played it, if recorded.
        setup: everything that its configuration names, with the recorded model configs.
        policy: returns a version of the run's policy; raises `InvalidPolicy`.

    Raises:
        StorageError, InvalidConfig: it cannot be read, or has no episode.
        EnvironmentFault, UnknownMethod, InvalidMethodOption, InvalidModelConfig: a named part does not exist
        here.
        SandboxUnavailable: skills cannot be isolated on this machine.
    """

    def __init__(self, run: RunData, trust: Collection[str] = ()) -> None:
        self.run = run
        self.process = next(reversed(run.processes), None)
        if self.process is None and not run.rows:
            raise RunDirectoryError(f"{run.path} has no episode yet: nothing to verify")
        self.setup = set_up_stored(run, trust)
        self.policy = cache(run.policies.load)

    @cached_property
    def has_other_texts(self) -> bool:
        """Return whether this checkout has other texts, tools or limits than the one that played the run."""
        here, process = checkout(self.setup), self.process
        return process is not None and (here["env"], here["prompts"]) != (process.env, process.prompts)

    @cached_property
    def is_finished(self) -> bool:
        """Return whether every step of the plan is finished. An unfinished run may have ledger rows without
        an episode, and episodes without a summary row. Raises `InvalidPlan`."""
        return {step_key(step) for step in self.setup.plan()} <= {*self.run.state.finished}

    def episodes(self) -> Iterator[Played]:
        """Yield every finished attempt of all episodes: of batches, evaluations and sleeps."""
        for phase in get_args(Phase):
            for number in self.run.files.numbers(phase):
                for each in self.run.played(phase, number, every_attempt=True):
                    yield Played(each, phase, number)
        for record in self.run.sleeps:
            for each in record.attempts:
                yield Played(each, "sleep", record.sleep)

    def spec(self, played: Played) -> ActorSpec:
        """Return the method's actor for an episode. Raises `InvalidPolicy`."""
        setup, episode = self.setup, played.trajectory
        policy = self.policy(episode.policy)
        training = played.phase == "train"
        spec = setup.method.agent(policy, episode.task, setup.env, training=training)
        return spec.with_part(setup.config.library)
