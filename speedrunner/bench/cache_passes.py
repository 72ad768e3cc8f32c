"""Replay recorded episodes with forced answers, with or without the prefix cache.

Each pass has its own `cache_salt` (a new one for every request without the cache) and its own grammars, so
neither finds grammars that the other compiled.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from msgspec.structs import replace

from serving.deployment import Deployment
from serving.engine.endpoint import Endpoint
from serving.engine.metrics import read_metrics
from serving.meter import LedgerRow
from serving.model import Model
from serving.together import run_together
from serving.usage import Counters, Usage
from speedrunner.agents.loop import plain_messages
from speedrunner.bench.player import Forcing, Played, Script, play_script
from speedrunner.runs.setup import Setup
from speedrunner.store.records import Trajectory
from speedrunner.store.run_data import RunData
from speedrunner.store.stored_run import RunDirectoryError

ENGINE = {
    "first_token_s": "time_to_first_token_seconds_sum",
    "first_tokens": "time_to_first_token_seconds_count",
    "inference_s": "request_inference_time_seconds_sum",
}
"""The engine's own sums that are read."""


@dataclass(frozen=True)
class RecordedRun:
    """A run to play again, with this many episodes at the same time."""

    data: RunData
    setup: Setup
    in_flight: int

    @property
    def method(self) -> str:
        """The name by which results are grouped."""
        return f"{self.setup.config.method.name} on {self.setup.config.env.name}"

    def episodes(self) -> dict[int, list[Trajectory]]:
        """Return its finished episodes by policy version in the order of their starts, with the actor's
        turns only.

        Raises:
            RunDirectoryError: there is none.
            StorageError: the run cannot be read.
        """
        found: dict[int, list[Trajectory]] = {}
        played = [*self.data.trajectories(), *self.data.evaluations()]
        for each in sorted(played, key=lambda each: (each.policy, each.started)):
            if turns := [turn for turn in each.turns if (turn.role, turn.conversation) == ("actor", 0)]:
                found.setdefault(each.policy, []).append(replace(each, turns=turns))
        if not found:
            path = self.data.path
            raise RunDirectoryError(f"{path} has no finished episode to replay yet")
        return found

    def script(self, played: Trajectory) -> Script:
        """Return an episode's conversation with its recorded answers."""
        setup = self.setup
        policy = self.data.policies.load(played.policy)
        tools = setup.method.agent(policy, played.task, setup.env).list_tools(setup.env)
        replies = [turn.messages[0].content for turn in played.turns[1:]]
        labels = {"role": "replay", "episode": played.episode}
        return Script(plain_messages(played.turns[0].messages), tools, replies, played.turns, labels)

    def check(self, played: Trajectory, tokens: int) -> None:
        """Raise `RunDirectoryError` unless the first prompt has as many tokens as recorded."""
        recorded = played.turns[0].usage.prompt
        if recorded != tokens:
            raise RunDirectoryError(
                f"{self.data.path}: the first prompt of {played.episode} had {recorded} tokens when it"
                f" was played, and {tokens} now: its templates, environment, method or model have"
                " changed"
            )


@dataclass
class CachePass:
    """The totals of one pass over episodes.

    Attributes:
        cache: whether requests shared the prefix cache.
        rows: rows of the ledger.
        played: the answers.
        wall_s: time from each policy's first request to its last answer, summed.
        engine: growth of the engine's own sums of seconds and counts meanwhile.
        foreign: whether others used the engine meanwhile, or requests had to be tried again.
        skipped: answers without room in the context, because earlier ones took more tokens.
    """

    cache: bool
    rows: list[LedgerRow] = field(default_factory=list)
    played: list[Played] = field(default_factory=list)
    wall_s: float = 0.0
    engine: dict[str, float] = field(default_factory=dict)
    foreign: bool = False
    skipped: int = 0
    salt: str = field(default_factory=lambda: secrets.token_hex(8))

    async def play(self, run: RecordedRun, model: Model, episode: Trajectory) -> None:
        """Play an episode, and count its answers. Raises as `play_twice`."""
        forcing = Forcing(lambda: self.salt) if self.cache else Forcing(lambda: secrets.token_hex(8), cut=1)
        played = await play_script(model, run.script(episode), forcing, partial(run.check, episode))
        self.played += played
        self.skipped += len(episode.turns) - len(played)

    async def measure(
        self, run: RecordedRun, model: Model, endpoint: Endpoint, episodes: Sequence[Trajectory]
    ) -> None:
        """Play the episodes of one policy, and add their totals. Raises as `play_twice`."""
        start = len(self.rows)
        counted, before = await _engine_sums(endpoint)
        began = time.monotonic()
        if self.cache:
            first = run.script(episodes[0])
            await model.warm("actor", first.messages, first.tools, {}, cache_salt=self.salt)
        self.wall_s += time.monotonic() - began
        _, warmed = await _engine_sums(endpoint)
        began = time.monotonic()
        await run_together(partial(self.play, run, model), episodes, run.in_flight)
        self.wall_s += time.monotonic() - began
        counted_then, after = await _engine_sums(endpoint)
        self.foreign |= counted_then - counted != Counters.of(sum_usage(self.rows[start:]))
        for name, value in after.items():
            since = before if name == "inference_s" else warmed  # warm-up requests are not answers
            self.engine[name] = self.engine.get(name, 0.0) + value - since[name]


async def play_twice(deployment: Deployment, run: RecordedRun, passes: Sequence[CachePass]) -> None:
    """Play a run's episodes in each pass, policy by policy, and add the totals to the passes.

    The pass that plays first alternates, so that neither has an advantage.

    Raises:
        RunDirectoryError: a first prompt has another length than recorded.
        ServingError: the engine failed.
    """
    policies = list(run.episodes().values())
    async with deployment.client(lambda row: None) as model:
        # An engine's first request of a kind takes longer, so this one counts for neither pass.
        first = replace(policies[0][0], turns=policies[0][0].turns[:1])
        await CachePass(cache=False).play(run, model, first)
    for number, episodes in enumerate(policies):
        for one in passes if number % 2 == 0 else reversed(passes):
            admission = one.cache and run.setup.config.serving.admission
            async with deployment.client(one.rows.append, admission=admission) as model:
                await one.measure(run, model, deployment.endpoint, episodes)


async def _engine_sums(endpoint: Endpoint) -> tuple[Counters, dict[str, float]]:
    """Return the engine's counters and its sums of seconds, since its start."""
    metrics = await read_metrics(endpoint)
    found = metrics.sums(*ENGINE.values())
    return metrics.counters(), {name: found[own] for name, own in ENGINE.items() if own in found}


def sum_usage(rows: Sequence[LedgerRow]) -> Usage:
    """Return the tokens of all answered requests."""
    return sum((row.usage for row in rows if row.usage is not None), Usage())
