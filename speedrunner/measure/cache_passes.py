"""A run's recorded episodes played twice: with the prefix cache, and with nothing shared between requests.

First prompts are rendered again from the records, with the tools of the policy that played. Every answer is
forced to what was recorded, by a tag that allows nothing else; the engine samples greedily, so that both
passes spell it with the same tokens; each pass has tags of its own, so that neither finds its grammars
compiled by the other. As in the run, an episode's next request waits for its last answer, so many episodes
are in flight, and a policy's episodes begin when those of the policy before have ended. What tools took in
between is left out; so is what the agents of a sleep wrote, whose tools stand in no record.

Both passes carry a `cache_salt`, which keeps them from what is in the cache already: with the cache one for
the whole pass, without a fresh one for every request. The prefix that a policy's episodes share is sent
before them in the pass with the cache only, and counted there: without a cache nobody would send it.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from serving.conversation import Completion
from serving.deployment import Deployment
from serving.engine.endpoint import Endpoint
from serving.engine.metrics import Counters, read_metrics
from serving.errors import ContextOverflow
from serving.meter import LedgerRow
from serving.model import Messages, Model
from serving.routes.tokens import TokenConversation
from serving.together import together
from serving.tokens.grammar import constant, sequence, structural_tag
from serving.tokens.tools import ToolSpec
from serving.usage import Usage
from speedrunner.agents.actor import Actor
from speedrunner.agents.loop import plain_messages
from speedrunner.runs.setup import Setup
from speedrunner.store.data import RunData
from speedrunner.store.records import Trajectory, Turn
from speedrunner.store.stored_run import RunDirectoryError

ENGINE = {
    "first_token_s": "time_to_first_token_seconds_sum",
    "first_tokens": "time_to_first_token_seconds_count",
    "inference_s": "request_inference_time_seconds_sum",
}
"""What is read of the engine's own sums."""


@dataclass(frozen=True)
class RecordedRun:
    """One run, as it is to be played again, with so many episodes at the same time."""

    data: RunData
    setup: Setup
    in_flight: int

    @property
    def method(self) -> str:
        """What its results are grouped by."""
        return f"{self.setup.config.method.name} on {self.setup.config.env.name}"

    def episodes(self) -> dict[int, list[Trajectory]]:
        """Its finished episodes by policy version, in the order of their beginnings; the actor's turns only.

        Nothing but the sleep before it had to be over when those of one version began.

        Raises:
            RunDirectoryError: there is none.
            StorageError: the run cannot be read.
        """
        found: dict[int, list[Trajectory]] = {}
        played = [*self.data.trajectories(), *self.data.evaluations()]
        for each in sorted(played, key=lambda each: (each.policy, each.started)):
            if turns := [turn for turn in each.turns if (turn.role, turn.conversation) == ("actor", 0)]:
                found.setdefault(each.policy, []).append(msgspec.structs.replace(each, turns=turns))
        if not found:
            path = self.data.path
            raise RunDirectoryError(f"{path} holds no finished episode yet: there is nothing to play again")
        return found


@dataclass
class CachePass:
    """What playing episodes once came to.

    Attributes:
        cache: whether requests shared the prefix cache.
        rows: of the ledger, the requests among them that show the engine to be ready.
        answers: the recorded ones beside those that came.
        wall_s: from the first request of each policy to its last answer, summed.
        engine: what the engine's own sums of seconds and counts grew by meanwhile.
        foreign: whether others used the engine meanwhile, or requests had to be tried again.
        skipped: answers for which the context had no room any more, as those before took more tokens.
        salt: keeps the pass with the cache from what is there already.
    """

    cache: bool
    rows: list[LedgerRow] = field(default_factory=list)
    answers: list[tuple[Turn, Completion]] = field(default_factory=list)
    wall_s: float = 0.0
    engine: dict[str, float] = field(default_factory=dict)
    foreign: bool = False
    skipped: int = 0
    salt: str = field(default_factory=lambda: secrets.token_hex(8))


async def play_twice(deployment: Deployment, run: RecordedRun, passes: Sequence[CachePass]) -> None:
    """Play a run's episodes in each way, policy by policy in turn, and add what it comes to.

    The way that comes first alternates, as do its advantages.

    Raises:
        RunDirectoryError: a first prompt comes out in another length than recorded.
        ServingError: the engine failed.
    """
    blocks = list(run.episodes().values())
    async with deployment.client(lambda row: None) as model:
        # What an engine does at its first request of a kind is nobody's time.
        first = msgspec.structs.replace(blocks[0][0], turns=blocks[0][0].turns[:1])
        await _Replay(run, model, CachePass(cache=False)).play(first)
    for number, episodes in enumerate(blocks):
        for one in passes if number % 2 == 0 else reversed(passes):
            admission = one.cache and run.setup.config.serving.admission
            async with deployment.client(one.rows.append, admission=admission) as model:
                await _Replay(run, model, one).measure(deployment.endpoint, episodes)


class _Replay:
    """Plays episodes of a run with one model, and counts them in a pass."""

    def __init__(self, run: RecordedRun, model: Model, one: CachePass) -> None:
        self._run = run
        self._model = model
        self._pass = one
        self._actor = Actor(run.setup.env, model, run.setup.config)

    async def measure(self, endpoint: Endpoint, episodes: Sequence[Trajectory]) -> None:
        """Play episodes of one policy, and count what the engine took for them."""
        one = self._pass
        begin = len(one.rows)
        counted, before = await _engine_sums(endpoint)
        began = time.monotonic()
        if one.cache:
            messages, tools = self._opening(episodes[0])
            await self._model.warm("actor", messages, tools, {}, cache_salt=one.salt)
        one.wall_s += time.monotonic() - began
        _, warmed = await _engine_sums(endpoint)
        began = time.monotonic()
        await together(self.play, episodes, self._run.in_flight)
        one.wall_s += time.monotonic() - began
        counted_then, after = await _engine_sums(endpoint)
        used = sum((row.usage for row in one.rows[begin:] if row.usage is not None), Usage())
        one.foreign |= counted_then - counted != Counters.of(used)
        for name, value in after.items():
            since = before if name == "inference_s" else warmed  # what warms the cache up is no answer
            one.engine[name] = one.engine.get(name, 0.0) + value - since[name]

    async def play(self, played: Trajectory) -> None:
        """Play one episode, each answer forced to what was recorded."""
        messages, tools = self._opening(played)
        talk = self._model.converse("actor", messages, tools, {"role": "study", "episode": played.episode})
        assert isinstance(talk, TokenConversation)
        recorded, now = played.turns[0].usage.prompt, len(talk.transcript.ids)
        try:
            if recorded != now:
                raise RunDirectoryError(
                    f"{self._run.data.path}: the first prompt of {played.episode} had {recorded} tokens and"
                    f" comes out with {now} now: its templates, environment, method or model changed since"
                )
            for number, turn in enumerate(played.turns):
                if number:
                    talk.tell(turn.messages[0].content)
                if not await self._answer(talk, turn):
                    self._pass.skipped += len(played.turns) - number
                    return
        finally:
            talk.close()

    async def _answer(self, talk: TokenConversation, turn: Turn) -> bool:
        """Let the model give the recorded answer; returns whether it had room for it."""
        if self._model.card.context - len(talk.transcript.ids) < turn.usage.completion:
            return False
        one, written = self._pass, talk.transcript.written(turn.reasoning, turn.text)
        # The engine keeps the grammars that it compiled: cut elsewhere, the same answer needs one of its own.
        cut = 0 if one.cache else 1
        grammar = sequence(*(constant(part) for part in (written[:cut], written[cut:]) if part))
        talk.transcript.grammar = grammar
        talk.options |= {
            "structured_outputs": {"structural_tag": structural_tag(grammar)},
            "temperature": 0.0,
            "cache_salt": one.salt if one.cache else secrets.token_hex(8),
        }
        await talk.ready()
        try:
            one.answers.append((turn, await talk.ask()))
        except ContextOverflow:
            return False
        return True

    def _opening(self, played: Trajectory) -> tuple[Messages, list[ToolSpec]]:
        """An episode's first messages, and what its actor could call."""
        policy, setup = self._run.data.policies.load(played.policy), self._run.setup
        spec = setup.method.agent(policy, played.task, setup.env)
        return plain_messages(played.turns[0].messages), spec.offered(setup.env)


async def _engine_sums(endpoint: Endpoint) -> tuple[Counters, dict[str, float]]:
    """The engine's counters and its sums of seconds, since its start."""
    told = await read_metrics(endpoint)
    found = told.sums(*ENGINE.values())
    return told.counters(), {name: found[own] for name, own in ENGINE.items() if own in found}
