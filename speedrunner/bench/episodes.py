"""Plays episodes for a benchmark, with the executor of runs, in the directory of a temporary run."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from envs import Task
from serving.apis.completions import TokenConversation
from serving.conversation import Conversation
from serving.meter import LedgerRow
from serving.model import Model
from speedrunner.agents.actor import Actor
from speedrunner.config.console import Status
from speedrunner.config.schema import to_yaml
from speedrunner.runs.direct import play_steps
from speedrunner.runs.executor import RunStopped
from speedrunner.runs.plan import Due, Wake
from speedrunner.runs.setup import Setup
from speedrunner.store.labels import Labels
from speedrunner.store.records import Trajectory, Turn
from speedrunner.store.rundir import RunDirectory
from speedrunner.workers.worker_pool import WorkerPool


@dataclass(frozen=True)
class PlayedEpisode:
    """An episode, its actor's conversation, and its rows of the ledger."""

    trajectory: Trajectory
    talk: TokenConversation
    rows: list[LedgerRow]


@dataclass
class BenchRun:
    """Plays training episodes of a configuration with its method's first policy. Made by `bench_run`.

    Attributes:
        calls: maximum requests per episode.
        tasks: the next numbered tasks; after the split's last one it restarts with the first.
        batches: numbers of the next rollouts.
        rows: ledger rows by episode.
    """

    setup: Setup
    directory: RunDirectory
    calls: int
    tasks: Iterator[tuple[int, Task]]
    batches: Iterator[int] = field(default_factory=itertools.count)
    rows: dict[str | None, list[LedgerRow]] = field(default_factory=dict)

    def record(self, row: LedgerRow) -> None:
        """Write a row of the ledger."""
        self.rows.setdefault(row.labels.get("episode"), []).append(row)
        self.directory.append_request(row)

    def workers(self, size: int) -> WorkerPool:
        """Return workers of the environment, one for each episode in flight."""
        return self.setup.workers(size, self.directory.files.worker_log)

    async def warm(self, model: Model) -> list[int]:
        """Send the prefix that all episodes share, alone. Return its token ids. Raises `ServingError`."""
        setup = self.setup
        actor = Actor(setup.env, self._limited(model), setup.config)
        spec = setup.method.agent(setup.initial_policy(), setup.split.train[0], setup.env)
        await actor.warm(spec, Labels())
        return actor.shared_prefix(spec)

    async def play(
        self, model: Model, pool: WorkerPool, episodes: int, status: Status
    ) -> list[PlayedEpisode]:
        """Play the next tasks.

        Args:
            status: called with the turns and episodes so far.

        Raises:
            RunStopped: an episode ended by an infrastructure error.
            ServingError, WorkerError, StorageError: the engine, the workers or the disk failed.
        """
        numbered = itertools.islice(self.tasks, episodes)
        batch, tasks = next(self.batches), {f"train/{number:04d}": task for number, task in numbered}
        talks: dict[str, TokenConversation] = {}
        turns = 0

        def keep(episode: str, talk: Conversation, turn: Turn | None) -> None:
            nonlocal turns
            assert isinstance(talk, TokenConversation)
            talks[episode] = talk
            turns += turn is not None
            status(f"{turns} turns of {len(talks)} of {episodes} episodes")

        steps = [Due(Wake(batch, 0, tasks), tasks)]
        await play_steps(self.setup, self.directory, self._limited(model), pool, steps, keep)
        played = self.directory.read().trajectories(batch)
        for each in played:
            if each.termination.is_fault:
                raise RunStopped(f"{each.episode} ended by {each.termination}: {each.error}")
        return [PlayedEpisode(each, talks[each.episode], self.rows[each.episode]) for each in played]

    def _limited(self, model: Model) -> Model:
        """Return the model with at most `calls` requests per episode."""
        roles = model.model_config.roles
        return model.with_roles(replace(roles, actor=replace(roles.actor, max_calls=self.calls)))


@contextmanager
def bench_run(setup: Setup, calls: int | None = None) -> Iterator[BenchRun]:
    """Open a run to play episodes in; its directory is removed afterwards. Raises `StorageError`.

    Args:
        calls: see `BenchRun`; `None`: as configured.
    """
    if calls is None:
        calls = setup.model_config.role("actor").calls(setup.env.limits.llm_calls)
    with (
        tempfile.TemporaryDirectory(prefix="speedrunner-bench-") as folder,
        RunDirectory.open_for_writing(Path(folder)) as directory,
    ):
        directory.write_config(to_yaml(setup.config))
        directory.write_policy(setup.initial_policy())
        yield BenchRun(setup, directory, calls, enumerate(itertools.cycle(setup.split.train)))
