"""The run to verify, with everything that its configuration names, and the differences that a check finds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from functools import cache, cached_property
from typing import Literal, get_args

import msgspec

from speedrunner.agents.actor import ActorSpec
from speedrunner.plain.findings import Finding, Level
from speedrunner.runs.identity import checkout
from speedrunner.runs.plan import step_key
from speedrunner.runs.stored_setup import set_up_stored
from speedrunner.store.records import Phase, Trajectory
from speedrunner.store.run_data import RunData
from speedrunner.store.stored_run import RunDirectoryError

SHOWN = 5
"""Maximum number of differences shown per check; further ones are counted."""

CHARS = 60
"""Characters shown of a value, starting shortly before the first difference."""


class Differences:
    """Collects the differences found by one check."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._first: list[str] = []
        self._found = 0
        self.left_out: Counter[str] = Counter()
        """Unchecked items, by reason."""

    def add(self, where: str, what: str) -> None:
        """Record a difference.

        Args:
            where: a file, or an episode or sleep with the turn (from 1).
        """
        one = f"{where}: {what}"
        if one in self._first:
            return  # already recorded for another row
        self._found += 1
        if len(self._first) < SHOWN:
            self._first.append(one)

    def expect(self, where: str, what: str, recorded: object, found: object) -> None:
        """Record a difference if a recorded value is not the expected one."""
        if recorded != found:
            self.add(where, f"{what}: {contrast(recorded, found)}")

    def finding(self, summary: str) -> Finding:
        """Return the finding of the check, with what was checked and counted."""
        why = "; ".join(f"{count} left out: {reason}" for reason, count in sorted(self.left_out.items()))
        text = f"{summary}; {why}" if why else summary
        level: Level = "failed" if self._found else "ok"
        return Finding(self._name, level, text, details=self._first, found=self._found)


def contrast(recorded: object, found: object) -> str:
    """Return two different values, each from shortly before the first difference."""
    one, other = (
        each if isinstance(each, str) else msgspec.json.encode(each).decode() for each in (recorded, found)
    )
    shorter = min(len(one), len(other))
    place = next((n for n in range(shorter) if one[n] != other[n]), shorter)
    start = max(place - CHARS // 3, 0)
    first, second = (
        f"{'...' * (start > 0)}{each[start : start + CHARS]}{'...' * (len(each) > start + CHARS)}"
        for each in (one, other)
    )
    return f"recorded is {first!r}, and it should be {second!r}"


def turn_of(episode: str, number: int) -> str:
    """Return the name of a turn for people; `number` counts from 0."""
    return f"{episode}, turn {number + 1}"


class RecordedEpisode(msgspec.Struct, frozen=True):
    """A recorded episode. `number` is that of its batch, its checkpoint, or the sleep that played it."""

    trajectory: Trajectory
    phase: Phase | Literal["sleep"]
    number: int


class CheckedRun:
    """A run to verify.

    Attributes:
        run: its records.
        process: the last process that played it, if recorded.
        setup: everything that its configuration names, with the recorded model configs.
        policy: returns a version of the run's policy; raises `InvalidPolicy`.

    Raises:
        StorageError, InvalidConfig: it cannot be read, or has no episode.
        EnvironmentFault, InvalidMethod, InvalidModelConfig: a named part does not exist
        here.
        SandboxError: skills cannot be isolated on this machine.
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

    def episodes(self) -> Iterator[RecordedEpisode]:
        """Yield every finished attempt of all episodes: of batches, evaluations and sleeps."""
        for phase in get_args(Phase):
            for number in self.run.files.numbers(phase):
                for trajectory in self.run.played(phase, number, every_attempt=True):
                    yield RecordedEpisode(trajectory, phase, number)
        for record in self.run.sleeps:
            for trajectory in record.episodes:
                yield RecordedEpisode(trajectory, "sleep", record.sleep)

    def spec(self, played: RecordedEpisode) -> ActorSpec:
        """Return the method's actor for an episode. Raises `InvalidPolicy`."""
        setup, episode = self.setup, played.trajectory
        policy = self.policy(episode.policy)
        training = played.phase == "train"
        spec = setup.method.agent(policy, episode.task, setup.env, training=training)
        return spec.with_part(setup.config.library)
