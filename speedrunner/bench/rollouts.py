"""Rollouts compared with a bare replay and the cache's maximum: `speedrunner bench rollout`, and `bench gpu`.

The executor of runs plays the episodes, in the directory of a temporary run. Each rollout and each replay has
its own part of the prefix cache, so none finds there what was sent before it.
"""

from __future__ import annotations

import itertools
import secrets
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from serving.admission import Replica
from serving.apis.completions import TokenConversation
from serving.conversation import Conversation
from serving.deployment import Deployment
from serving.engine.client import run_together
from serving.engine.http_client import HttpClient, HttpError
from serving.errors import RequestFailed
from serving.model import Model
from serving.model_config import ModelConfig
from serving.options import REQUEST_TIMEOUT_S
from speedrunner.agents.actor import Actor
from speedrunner.bench.engine import CACHE_TARGETS
from speedrunner.bench.measurement import MeasuredFigure, MeasuredTable, Measurement
from speedrunner.plain.console import Status, prefix_status
from speedrunner.results.ledger import token_line
from speedrunner.runs.executor import Executor, RunStopped
from speedrunner.runs.open_run import open_new_run
from speedrunner.runs.plan import Due, Wake
from speedrunner.runs.setup import Setup
from speedrunner.store.records import Labels, Turn
from speedrunner.store.rundir import RunDirectory
from speedrunner.workers.worker_pool import WorkerPool

RATIO_TARGET, GPU_RATIO_TARGET = 0.90, 0.95

WARM_UP_CALLS = 2
"""Requests of each episode before the first pair. The second one continues a cached prompt."""

LEAST_JUDGED = 8
"""Minimum requests of an episode for a verdict. Shorter episodes are mostly start."""


class Rollout(msgspec.Struct, frozen=True, kw_only=True):
    """One rollout. Tokens are sums over all requests; `None`: not measured.

    Attributes:
        in_flight: episodes, all played at the same time.
        calls: maximum requests per episode.
        prompt, output: tokens of all requests.
        mean_in_flight: requests in flight, in the mean over `seconds`.
        output_per_s: output tokens per second.
        replay_per_s: the same for the bare replay.
        ratio: rollout over bare replay, in output tokens per second.
        hit_rate: prompt tokens from the prefix cache, as a share of all.
        of_maximum: the same as a share of those that the cache could provide, if there are any.
        queued: requests before which the episode was queued.
        client_ms: CPU ms of this process per turn; environments run in other processes.
    """

    in_flight: int
    calls: int
    turns: int
    prompt: int
    output: int
    seconds: float
    mean_in_flight: float
    output_per_s: float
    replay_per_s: float | None = None
    ratio: float | None = None
    hit_rate: float
    of_maximum: float | None
    queued: int
    client_ms: float


async def replay_bare(
    deployment: Deployment,
    http: HttpClient,
    prefix: list[int],
    episodes: Sequence[tuple[Sequence[Turn], TokenConversation]],
) -> float:
    """Send the requests of a rollout again with a minimal client; return its output tokens per second.

    It samples answers under the same grammars. The recorded replies follow them, so that the cache can
    provide as much as it did for the rollout. A salt separates its part of the cache from all earlier
    requests. Its conversations queue for room in the cache as those of the rollout did. Raises
    `RequestFailed`.

    Args:
        prefix: token ids that all conversations start with. They are sent alone first, as by the rollout.
        episodes: each one's turns and its actor's conversation.
    """
    model_config, salt = deployment.model_config, secrets.token_hex(8)

    async def complete(
        ids: list[int], max_tokens: int, options: dict[str, Any], replica: Replica
    ) -> list[int]:
        fixed = {"model": model_config.name, "return_token_ids": True, "max_tokens": max_tokens}
        headers = {} if replica.address is None else {"X-data-parallel-rank": str(replica.address)}
        body = msgspec.json.encode({**fixed, **options, "cache_salt": salt, "prompt": ids})
        try:
            response = await http.send("/v1/completions", body, headers)
        except HttpError as error:
            raise RequestFailed(f"a bare request failed: {error}") from error
        if response.status != 200:
            raise RequestFailed(f"a bare request got status {response.status}: {response.text}")
        answer: list[int] = response.json()["choices"][0]["token_ids"]
        return answer

    async def play(episode: tuple[Sequence[Turn], TokenConversation]) -> int:
        turns, talk = episode
        recorded, usages = talk.transcript.ids, [turn.usage for turn in turns]
        replies = [
            recorded[before.prompt + before.completion : after.prompt]
            for before, after in itertools.pairwise(usages)
        ]
        tokens, ids = 0, recorded[: usages[0].prompt]
        slot = talk.replica.slot(tuple(prefix))
        try:
            for talk.turns, reply in enumerate([*replies, []]):  # the seed is that of the same turn
                room = model_config.context - len(ids)
                if room < 1:
                    break
                await slot.enter(len(ids))
                most = min(talk.transcript.answer_tokens, room)
                answer = await complete(ids, most, talk.options | talk.seed, talk.replica)
                slot.pause()
                tokens += len(answer)
                ids += answer + reply
        finally:
            slot.leave()
        return tokens

    for replica in deployment.replicas:
        await complete(prefix, 1, {}, replica)
    began = time.monotonic()
    tokens = sum(await run_together(play, episodes, len(episodes)))
    return tokens / (time.monotonic() - began)


@dataclass
class Player:
    """Plays rollouts with a fixed number of episodes in flight. Made by `open_player`."""

    deployment: Deployment
    setup: Setup
    directory: RunDirectory
    in_flight: int
    model: Model
    pool: WorkerPool
    http: HttpClient
    _batches: Iterator[int] = field(default_factory=itertools.count)

    async def play(self, calls: int, status: Status, *, replayed: bool = False) -> Rollout:
        """Play the next training tasks, and replay their requests on request.

        Args:
            calls: maximum requests per episode.
            status: called with the turns and episodes so far.

        Raises:
            RunStopped: an episode ended by an infrastructure error.
            ServingError, WorkerError, StorageError: the engine, the workers or the disk failed.
        """
        roles = self.model.model_config.roles
        role = msgspec.structs.replace(roles.actor, max_calls=calls)
        model = self.model.with_roles(msgspec.structs.replace(roles, actor=role))
        model.engine.cache_salt = secrets.token_hex(8)
        model.forget_cache()
        setup = self.setup
        actor = Actor(setup.env, model, setup.config)
        spec = setup.method.agent(setup.initial_policy(), setup.split.train[0], setup.env)
        await actor.warm(spec, Labels())  # the prefix that all episodes share
        prefix = actor.shared_prefix(spec)
        await self.pool.ready()
        batch, talks, heard = next(self._batches), dict[str, TokenConversation](), 0
        first = batch * self.in_flight
        chosen = itertools.islice(itertools.cycle(setup.split.train), first, first + self.in_flight)
        tasks = {f"train/{number:04d}": task for number, task in enumerate(chosen, first)}

        def keep(episode: str, talk: Conversation, turn: Turn | None) -> None:
            nonlocal heard
            assert isinstance(talk, TokenConversation)
            talks[episode] = talk
            heard += turn is not None
            status(f"{heard} turns of {len(talks)} of {self.in_flight} episodes")

        executor = Executor(self.directory, setup.method, actor, self.pool, watch=keep)
        began, cpu_began = time.monotonic(), time.process_time()
        await executor.execute([Due(Wake(batch, 0, tasks), tasks)])
        seconds, cpu_s = time.monotonic() - began, time.process_time() - cpu_began
        played = self.directory.read().trajectories(batch)
        for episode in played:
            if episode.termination.is_fault:
                raise RunStopped(f"{episode.episode} ended by {episode.termination}: {episode.error}")
        turns = [turn for each in played for turn in each.turns]
        requests = {turn.request for turn in turns}
        line = token_line(self.directory.read(), requests)
        prompt = sum(turn.usage.prompt for turn in turns)
        output = sum(turn.usage.completion for turn in turns)
        output_per_s, replay_per_s = output / seconds, None
        if replayed:
            status(f"{output_per_s:.0f} output tokens/s; its bare replay")
            episodes = [(each.turns, talks[each.episode]) for each in played]
            replay_per_s = await replay_bare(self.deployment, self.http, prefix, episodes)
        return Rollout(
            in_flight=self.in_flight,
            calls=calls,
            turns=len(turns),
            prompt=prompt,
            output=output,
            seconds=seconds,
            mean_in_flight=sum(turn.seconds for turn in turns) / seconds,
            output_per_s=output_per_s,
            replay_per_s=replay_per_s,
            ratio=output_per_s / replay_per_s if replay_per_s else None,
            hit_rate=line.tokens.cached / prompt,
            of_maximum=line.cache_share,
            queued=sum(turn.queued_s > 0 for turn in turns),
            client_ms=1000 * cpu_s / len(turns),
        )


@asynccontextmanager
async def open_player(deployment: Deployment, setup: Setup, in_flight: int) -> AsyncIterator[Player]:
    """Start the workers of a player, and its temporary run. Raises `WorkerError`, `ServingError`,
    `StorageError`."""
    with (
        tempfile.TemporaryDirectory(prefix="speedrunner-bench-") as folder,
        open_new_run(setup, Path(folder)) as directory,
    ):
        async with (
            setup.workers(in_flight, directory.files.worker_log) as pool,
            deployment.client(directory.append_request) as model,
            deployment.endpoint.client(REQUEST_TIMEOUT_S) as http,
        ):
            yield Player(deployment, setup, directory, in_flight, model, pool, http)


async def measure_rollouts(
    deployment: Deployment,
    setup: Setup,
    status: Status,
    levels: Sequence[int],
    pairs: int,
    most_calls: int | None = None,
) -> Measurement:
    """Play rollouts, each followed by its bare replay, with each number of episodes in flight.

    A short rollout goes before the first pair of a level. In it a new server compiles kernels and grammars.

    Args:
        levels: numbers of episodes in flight.
        most_calls: maximum requests of an episode; `None`: as configured.

    Raises `ServingError`, `WorkerError`, `StorageError`, `RunStopped`.
    """
    calls = setup.env.limits.llm_calls
    calls = min(calls, most_calls or calls)
    rollouts: list[Rollout] = []
    for level in levels:
        async with open_player(deployment, setup, level) as player:
            await player.play(WARM_UP_CALLS, prefix_status(status, f"warm-up with {level} in flight"))
            for number in range(1, pairs + 1):
                so_far = "".join(f"{each.ratio:.3f} of the replay; " for each in rollouts[-1:])
                which = f"{so_far}pair {number} of {pairs} with {level} in flight"
                rollouts.append(await player.play(calls, prefix_status(status, which), replayed=True))
    return describe_rollouts(deployment.model_config, rollouts)


def describe_rollouts(model_config: ModelConfig, rollouts: Sequence[Rollout]) -> Measurement:
    """Return rollouts as a table, one column each, with their median ratios and the least cached share.

    They have targets if episodes are long enough. The ratio's is 0.95 on GPUs and 0.90 on a CPU, which the
    client shares with the engine.
    """
    least, figures = GPU_RATIO_TARGET if model_config.gpus else RATIO_TARGET, list[MeasuredFigure]()
    for level, of_level in itertools.groupby(rollouts, lambda each: each.in_flight):
        played = list(of_level)
        ratios = [each.ratio for each in played if each.ratio is not None]
        which = "rollout" if len(ratios) == 1 else f"median of {len(ratios)} rollouts"
        name = f"{which} over bare replay, {level} in flight"
        target = least if played[0].calls >= LEAST_JUDGED else None
        figures.append(MeasuredFigure(name, statistics.median(ratios), at_least=target, form=".3f"))
    shares = [each.of_maximum for each in rollouts if each.of_maximum is not None]
    if shares:
        target = CACHE_TARGETS[model_config.cache] if rollouts[0].calls >= LEAST_JUDGED else None
        figures.append(MeasuredFigure("least cached share of the maximum", min(shares), target, form=".2%"))
    return Measurement(
        f"{model_config.name}: rollouts, each followed by a bare replay of its requests",
        figures,
        tables=[MeasuredTable("rollouts", rollouts, turned=True)],
        facts={"model": model_config.name},
    )
