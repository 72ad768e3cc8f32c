"""Episodes that are played to measure what plays them: by the executor of runs, in a run's directory."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from envs import Task
from serving.conversation import Conversation, TokenConversation
from serving.meter import LedgerRow
from serving.model import Model
from speedrunner.agents.actor import Actor, ActorSpec
from speedrunner.config.schema import to_yaml
from speedrunner.hosts.host_pool import HostPool
from speedrunner.runs.drain import Drain
from speedrunner.runs.executor import Executor, RunStopped
from speedrunner.runs.plan import Wake
from speedrunner.runs.progress import Progress
from speedrunner.runs.setup import Setup
from speedrunner.store.records import Trajectory, Turn
from speedrunner.store.rundir import RunDirectory


class RecordingActor(Actor):
    """An actor that keeps its conversations.

    Attributes:
        talks: by episode.
    """

    def __init__(self, setup: Setup, model: Model) -> None:
        super().__init__(setup.env, model, setup.episode_limits())
        self.talks: dict[str, TokenConversation] = {}

    def keep(self, episode: str, conversation: Conversation, turn: Turn | None) -> None:
        """Keep an episode's conversation."""
        assert isinstance(conversation, TokenConversation)
        self.talks[episode] = conversation


class BenchRun:
    """Plays training episodes of a configuration, batch by batch. Made by `bench_run`.

    Attributes:
        directory: the run's, to which clients write their ledger.
    """

    def __init__(self, setup: Setup, directory: RunDirectory) -> None:
        self.directory = directory
        self._setup = setup
        self._batches = itertools.count()
        self._tasks = enumerate(itertools.cycle(setup.split.train))

    def hosts(self, size: int) -> HostPool:
        """Hosts of the environment, as many as episodes are to be in flight."""
        config = self._setup.config
        sandbox = self._setup.sandbox()
        return HostPool(size, config.env.name, config.env.options, self.directory.host_log, sandbox)

    def spec(self) -> ActorSpec:
        """What the initial policy gives its actor."""
        return self._setup.method.agent(
            self._setup.initial_policy(), self._setup.split.train[0], self._setup.env
        )

    async def play(self, actor: RecordingActor, pool: HostPool, episodes: int) -> list[Trajectory]:
        """Play the next tasks of the split; when all were played, they come again.

        Raises:
            RunStopped: an episode ended by a fault of ours.
            ServingError, HostError, StorageError: the engine, the hosts or the disk failed.
        """
        tasks: dict[str, Task] = {
            f"train/{number:04d}": task for number, task in itertools.islice(self._tasks, episodes)
        }
        batch = next(self._batches)
        with Progress(Console(file=io.StringIO()), episodes, 0) as progress:
            executor = Executor(
                directory=self.directory,
                method=self._setup.method,
                actor=actor,
                pool=pool,
                progress=progress,
                drain=Drain(lambda line: None),
                sandbox=self._setup.sandbox(),
                attempts={},
                watch=actor.keep,
            )
            await executor.execute([Wake(batch, 0, tasks)])
        played = self.directory.trajectories(batch)
        for each in played:
            if each.ending.is_fault:
                raise RunStopped(f"{each.episode} ended by {each.ending}: {each.error}")
        return played

    def rows(self, played: list[Trajectory]) -> list[LedgerRow]:
        """The actor's rows of the ledger for these episodes."""
        episodes = {each.episode for each in played}
        rows = self.directory.requests(LedgerRow)
        return [row for row in rows if row.labels.get("episode") in episodes]


@contextmanager
def bench_run(setup: Setup, folder: Path) -> Iterator[BenchRun]:
    """Batches to play, with a new run's directory. Raises `StorageError`."""
    with RunDirectory.open_for_writing(folder) as directory:
        directory.write_config(to_yaml(setup.config))
        directory.write_policy(setup.initial_policy())
        yield BenchRun(setup, directory)
