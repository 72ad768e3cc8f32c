"""Rollouts: episodes played on an engine, as one typed row each, with a bare replay on request.

`bench rollout`, `bench cache` and `bench gpu` play them in different sizes and print different columns. The
executor of runs plays the episodes, in the directory of a temporary run.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from envs import Task
from serving.apis.completions import TokenConversation
from serving.conversation import Conversation
from serving.deployment import Deployment
from serving.engine.http import HttpClient
from serving.engine.metrics import read_metrics
from serving.meter import LedgerRow
from serving.model import Model
from serving.options import REQUEST_TIMEOUT_S
from speedrunner.agents.actor import Actor
from speedrunner.bench.bare_replay import BareClient, TokenStream
from speedrunner.config.console import Status
from speedrunner.config.schema import to_yaml
from speedrunner.results.ledger import token_line
from speedrunner.runs.direct import play_steps
from speedrunner.runs.executor import RunStopped
from speedrunner.runs.plan import Due, Wake
from speedrunner.runs.setup import Setup
from speedrunner.store.labels import Labels
from speedrunner.store.records import Trajectory, Turn
from speedrunner.store.rundir import RunDirectory
from speedrunner.workers.worker_pool import WorkerPool

PREEMPTIONS = "num_preemptions_total"


class Rollout(msgspec.Struct, frozen=True, kw_only=True):
    """One rollout. Tokens are sums over all requests; `None`: not measured.

    Attributes:
        calls: maximum requests per episode.
        prompt, output: tokens of all requests.
        output_per_s: output tokens per second.
        replay_per_s: the same for the bare replay.
        ratio: rollout over bare replay, in output tokens per second.
        cached, cacheable: prompt tokens from the prefix cache, and the most that it could provide.
        of_maximum: `cached` over `cacheable`.
        hit_rate: `cached` over `prompt`.
        queued: requests before which the episode was queued.
        preemptions: requests that the engine stopped for lack of blocks, and computed again.
        client_ms: CPU ms of this process per turn; environments run in other processes.
    """

    in_flight: int
    episodes: int
    calls: int
    turns: int
    prompt: int
    output: int
    seconds: float
    output_per_s: float
    replay_per_s: float | None = None
    ratio: float | None = None
    cached: int
    cacheable: int
    of_maximum: float
    hit_rate: float
    queued: int
    preemptions: int
    client_ms: float


@dataclass
class BenchRun:
    """The temporary run that players write to, and its training tasks. Made by `bench_run`.

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


@dataclass
class Player:
    """Plays rollouts with a fixed number of episodes in flight. Made by `open_player`."""

    deployment: Deployment
    run: BenchRun
    in_flight: int
    model: Model
    pool: WorkerPool
    http: HttpClient

    async def play(self, episodes: int, status: Status, *, replayed: bool = False) -> Rollout:
        """Play training episodes, and replay their requests on request.

        Raises:
            RunStopped: an episode ended by an infrastructure error.
            ServingError, WorkerError, StorageError: the engine, the workers or the disk failed.
        """
        prefix = await self._warm()
        await self.pool.ready()
        before = await self._preemptions()
        began, cpu_began = time.monotonic(), time.process_time()
        played, talks = await self._play_episodes(episodes, status)
        seconds, cpu_s = time.monotonic() - began, time.process_time() - cpu_began
        preemptions = await self._preemptions() - before
        line = token_line(row for each in played for row in self.run.rows[each.episode])
        prompt, cached = int(line.tokens.cached + line.tokens.computed), int(line.tokens.cached)
        turns = [turn for each in played for turn in each.turns]
        output = sum(each.usage.completion for each in played)
        output_per_s, replay_per_s = output / seconds, None
        if replayed:
            status(f"{output_per_s:.0f} output tokens/s; its bare replay")
            streams = [TokenStream.of(each.turns, talk) for each, talk in zip(played, talks, strict=True)]
            bare = BareClient(self.deployment, self.http)
            await bare.warm(streams, prefix)
            began = time.monotonic()
            replay_per_s = await bare.play(streams) / (time.monotonic() - began)
        return Rollout(
            in_flight=self.in_flight,
            episodes=len(played),
            calls=self.run.calls,
            turns=len(turns),
            prompt=prompt,
            output=output,
            seconds=seconds,
            output_per_s=output_per_s,
            replay_per_s=replay_per_s,
            ratio=output_per_s / replay_per_s if replay_per_s else None,
            cached=cached,
            cacheable=line.cacheable,
            of_maximum=line.cache_share or 0.0,
            hit_rate=cached / prompt,
            queued=sum(turn.queued_s > 0 for turn in turns),
            preemptions=preemptions,
            client_ms=1000 * cpu_s / len(turns),
        )

    async def _warm(self) -> list[int]:
        """Send the prefix that all episodes share, alone. Return its token ids. Raises `ServingError`."""
        setup = self.run.setup
        actor = Actor(setup.env, self._limited_model(), setup.config)
        spec = setup.method.agent(setup.initial_policy(), setup.split.train[0], setup.env)
        await actor.warm(spec, Labels())
        return actor.shared_prefix(spec)

    async def _play_episodes(
        self, episodes: int, status: Status
    ) -> tuple[list[Trajectory], list[TokenConversation]]:
        """Play the next tasks; return the episodes and their actors' conversations. Raises as `play`.

        Args:
            status: called with the turns and episodes so far.
        """
        run, talks, turns = self.run, dict[str, TokenConversation](), 0
        batch = next(run.batches)
        tasks = {f"train/{number:04d}": task for number, task in itertools.islice(run.tasks, episodes)}

        def keep(episode: str, talk: Conversation, turn: Turn | None) -> None:
            nonlocal turns
            assert isinstance(talk, TokenConversation)
            talks[episode] = talk
            turns += turn is not None
            status(f"{turns} turns of {len(talks)} of {episodes} episodes")

        steps = [Due(Wake(batch, 0, tasks), tasks)]
        await play_steps(run.setup, run.directory, self._limited_model(), self.pool, steps, keep)
        played = run.directory.read().trajectories(batch)
        for each in played:
            if each.termination.is_fault:
                raise RunStopped(f"{each.episode} ended by {each.termination}: {each.error}")
        return played, [talks[each.episode] for each in played]

    def _limited_model(self) -> Model:
        """Return the model with at most `calls` requests per episode."""
        roles = self.model.model_config.roles
        actor = msgspec.structs.replace(roles.actor, max_calls=self.run.calls)
        return self.model.with_roles(msgspec.structs.replace(roles, actor=actor))

    async def _preemptions(self) -> int:
        """Return how many requests the engine has stopped for lack of blocks since its start."""
        sums = (await read_metrics(self.deployment.endpoint)).sums(PREEMPTIONS)
        return int(sums.get(PREEMPTIONS, 0))


@asynccontextmanager
async def open_player(deployment: Deployment, run: BenchRun, in_flight: int) -> AsyncIterator[Player]:
    """Start the workers of a player. Raises `WorkerError`, `ServingError`."""
    async with (
        run.setup.workers(in_flight, run.directory.files.worker_log) as pool,
        deployment.client(run.record) as model,
        deployment.endpoint.client(REQUEST_TIMEOUT_S) as http,
    ):
        yield Player(deployment, run, in_flight, model, pool, http)
