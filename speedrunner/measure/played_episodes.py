"""Episodes that are played to measure what plays them: by the executor of runs, in a run's directory."""

from __future__ import annotations

import copy
import io
import itertools
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
from rich.console import Console

from serving.conversation import Conversation
from serving.meter import LedgerRow
from serving.model import Model
from serving.routes.tokens import TokenConversation
from speedrunner.agents.actor import Actor
from speedrunner.config.schema import to_yaml
from speedrunner.hosts.host_pool import HostPool
from speedrunner.measure.measurement import Status
from speedrunner.runs.drain import Drain
from speedrunner.runs.due import Due
from speedrunner.runs.executor import Executor, RunStopped
from speedrunner.runs.plan import Wake
from speedrunner.runs.progress import Progress
from speedrunner.runs.setup import Setup
from speedrunner.store.labels import Labels
from speedrunner.store.records import Trajectory, Turn
from speedrunner.store.rundir import RunDirectory


@dataclass(frozen=True)
class PlayedEpisode:
    """An episode, its actor's conversation, and its rows of the ledger."""

    trajectory: Trajectory
    talk: TokenConversation
    rows: list[LedgerRow]


class BenchRun:
    """Plays training episodes of a configuration with its method's first policy. Made by `bench_run`.

    Attributes:
        calls: most requests of an episode; `None`: as the configuration says.
        rows: of the ledger, by episode.
    """

    def __init__(self, setup: Setup, directory: RunDirectory, calls: int | None = None) -> None:
        self.calls = calls
        self._setup = setup
        self._directory = directory
        self._batches = itertools.count()
        self._tasks = enumerate(itertools.cycle(setup.split.train))
        self._spec = setup.method.agent(setup.initial_policy(), setup.split.train[0], setup.env)
        self.rows: dict[str | None, list[LedgerRow]] = {}

    def record(self, row: LedgerRow) -> None:
        """Write a row of the ledger."""
        self.rows.setdefault(row.labels.get("episode"), []).append(row)
        self._directory.append_request(row)

    def hosts(self, size: int) -> HostPool:
        """Hosts of the environment, as many as episodes are to be in flight."""
        return self._setup.hosts(size, self._directory.host_log)

    async def warm(self, model: Model) -> list[int]:
        """Send the prefix that all episodes share, alone. Returns its token ids. Raises `ServingError`."""
        actor = self._actor(model)
        await actor.warm(self._spec, Labels())
        return actor.shared_prefix(self._spec)

    async def play(self, model: Model, pool: HostPool, episodes: int, status: Status) -> list[PlayedEpisode]:
        """Play the next tasks of the split; when all were played, they come again.

        Args:
            status: is told how far it is.

        Raises:
            RunStopped: an episode ended by a fault of ours.
            ServingError, HostError, StorageError: the engine, the hosts or the disk failed.
        """
        numbered = itertools.islice(self._tasks, episodes)
        batch, tasks = next(self._batches), {f"train/{number:04d}": task for number, task in numbered}
        talks: dict[str, TokenConversation] = {}
        turns = 0

        def keep(episode: str, talk: Conversation, turn: Turn | None) -> None:
            nonlocal turns
            assert isinstance(talk, TokenConversation)
            talks[episode] = talk
            turns += turn is not None
            status(f"{turns} turns of {len(talks)} of {episodes} episodes")

        with Progress(Console(file=io.StringIO()), episodes, 0) as progress:
            executor = Executor(
                directory=self._directory,
                method=self._setup.method,
                actor=self._actor(model),
                pool=pool,
                progress=progress,
                drain=Drain(lambda line: None),
                attempts={},
                watch=keep,
            )
            await executor.execute([Due(Wake(batch, 0, tasks), tasks)])
        played = self._directory.trajectories("train", batch)
        for each in played:
            if each.ending.is_fault:
                raise RunStopped(f"{each.episode} ended by {each.ending}: {each.error}")
        return [PlayedEpisode(each, talks[each.episode], self.rows[each.episode]) for each in played]

    def _actor(self, model: Model) -> Actor:
        if self.calls is not None:
            roles = model.card.roles
            actor = msgspec.structs.replace(roles.actor, max_calls=self.calls)
            model = copy.copy(model)
            model.card = msgspec.structs.replace(
                model.card, roles=msgspec.structs.replace(roles, actor=actor)
            )
        return Actor(self._setup.env, model, self._setup.config)


@contextmanager
def bench_run(setup: Setup, calls: int | None = None) -> Iterator[BenchRun]:
    """Episodes to play, with a new run's directory that is gone afterwards. Raises `StorageError`.

    Args:
        calls: see `BenchRun`.
    """
    with (
        tempfile.TemporaryDirectory(prefix="speedrunner-bench-") as folder,
        RunDirectory.open_for_writing(Path(folder)) as directory,
    ):
        directory.write_config(to_yaml(setup.config))
        directory.write_policy(setup.initial_policy())
        yield BenchRun(setup, directory, calls)
