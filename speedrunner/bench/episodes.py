"""Episodes played for a benchmark: by the executor of runs, in the directory of a temporary run."""

from __future__ import annotations

import copy
import itertools
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from serving.conversation import Conversation
from serving.meter import LedgerRow
from serving.model import Model
from serving.routes.tokens import TokenConversation
from speedrunner.agents.actor import Actor
from speedrunner.config.schema import to_yaml
from speedrunner.console import Status
from speedrunner.hosts.host_pool import HostPool
from speedrunner.runs.direct import play_steps
from speedrunner.runs.due import Due
from speedrunner.runs.executor import RunStopped
from speedrunner.runs.plan import Wake
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
        calls: maximum requests per episode; `None`: as configured.
        rows: ledger rows by episode.
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
        """Return hosts of the environment, one for each episode in flight."""
        return self._setup.hosts(size, self._directory.files.host_log)

    async def warm(self, model: Model) -> list[int]:
        """Send the prefix that all episodes share, alone. Return its token ids. Raises `ServingError`."""
        actor = Actor(self._setup.env, self._limited(model), self._setup.config)
        await actor.warm(self._spec, Labels())
        return actor.shared_prefix(self._spec)

    async def play(self, model: Model, pool: HostPool, episodes: int, status: Status) -> list[PlayedEpisode]:
        """Play the next tasks of the split, from its beginning again after the last one.

        Args:
            status: gets the turns and episodes so far.

        Raises:
            RunStopped: an episode ended by an infrastructure error.
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

        steps = [Due(Wake(batch, 0, tasks), tasks)]
        await play_steps(self._setup, self._directory, self._limited(model), pool, steps, keep)
        played = self._directory.read().trajectories(batch)
        for each in played:
            if each.ending.is_fault:
                raise RunStopped(f"{each.episode} ended by {each.ending}: {each.error}")
        return [PlayedEpisode(each, talks[each.episode], self.rows[each.episode]) for each in played]

    def _limited(self, model: Model) -> Model:
        """Return the model with at most `calls` requests per episode."""
        if self.calls is None:
            return model
        roles = model.card.roles
        actor = msgspec.structs.replace(roles.actor, max_calls=self.calls)
        model = copy.copy(model)
        model.card = msgspec.structs.replace(model.card, roles=msgspec.structs.replace(roles, actor=actor))
        return model


@contextmanager
def bench_run(setup: Setup, calls: int | None = None) -> Iterator[BenchRun]:
    """Open a run to play episodes in; its directory is removed afterwards. Raises `StorageError`.

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
