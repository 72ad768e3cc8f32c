"""Whether the prefix cache changes answers: `speedrunner bench replay`.

The prompts of recorded episodes are sent once more, so the cache fills as it does in a run. After each,
requests for one token ask for the log-probability at some positions of the recorded answer: once with the
prefix from the cache, and twice with the whole prompt computed. The two computed ones show the engine's own
noise.

These requests have no grammar, because vLLM 0.32 takes log-probabilities after the grammar's mask. Instead
they allow only the recorded token (`allowed_token_ids`), which vLLM applies after it has taken them. They do
not use `prompt_logprobs`, because vLLM does not read the cache for those.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, NamedTuple

from serving.deployment import Deployment
from serving.engine.client import Engine
from serving.engine.prompt import Prompt
from serving.errors import RequestRefused
from serving.together import run_together
from serving.tokens.tokenizer import ChatTokenizer
from serving.tokens.transcript import open_transcript
from speedrunner.agents.loop import plain_messages
from speedrunner.bench.engine import completions_api, open_engine
from speedrunner.bench.measurement import Measurement, Table, columns
from speedrunner.config.console import Status
from speedrunner.runs.setup import Setup
from speedrunner.store.records import Trajectory
from speedrunner.store.run_data import RunData
from speedrunner.store.stored_run import RunDirectoryError

FLOORS = {"median": 0.02, "p95": 0.1, "max": 1.0}
"""Shifts (natural logarithm) that always count as noise, for 16-bit weights; a hundredth for 32 bits. So do
shifts up to 3 times the control's. An engine adds numbers in another order when it computes another part of a
prompt, and a control that repeats the same request does not show that. Chosen, not measured."""

IN_FLIGHT = 4
"""Episodes that are compared at the same time."""


class Answer(NamedTuple):
    """The token ids of a recorded answer, and of the prompt before it."""

    prompt: list[int]
    ids: list[int]


@dataclass(frozen=True)
class RecordedRun:
    """A run whose conversations are written again."""

    data: RunData
    setup: Setup

    def conversations(self, tokenizer: ChatTokenizer) -> list[list[Answer]]:
        """Return the actor's answers of each finished episode.

        Raises:
            RunDirectoryError: a first prompt is not as long as recorded.
            StorageError: the run cannot be read.
        """
        played = [*self.data.trajectories(), *self.data.evaluations()]
        found = [self._answers(each, tokenizer) for each in sorted(played, key=lambda each: each.started)]
        return [*filter(None, found)]

    def _answers(self, episode: Trajectory, tokenizer: ChatTokenizer) -> list[Answer]:
        turns = [turn for turn in episode.turns if (turn.role, turn.conversation) == ("actor", 0)]
        if not turns:
            return []
        setup, policy = self.setup, self.data.policies.load(episode.policy)
        tools = setup.method.agent(policy, episode.task, setup.env).list_tools(setup.env)
        messages = plain_messages(turns[0].messages)
        transcript = open_transcript(setup.model_config, "actor", tokenizer, messages, tools)
        recorded, tokens = turns[0].usage.prompt, len(transcript.ids)
        if recorded != tokens:
            raise RunDirectoryError(
                f"{self.data.path}: the first prompt of {episode.episode} had {recorded} tokens when it"
                f" was played, and {tokens} now: its templates, environment, method or model have"
                " changed"
            )
        found = []
        for number, turn in enumerate(turns):
            if number:
                transcript.tell(turn.messages[0].content)
            ids = [*tokenizer.framed(transcript.written(turn.reasoning, turn.text)), transcript.end_of_turn]
            found.append(Answer(list(transcript.ids), ids))
            transcript.answer(ids)
        return [each for each in found if len(each.prompt) + len(each.ids) <= setup.model_config.context]


class ForcedToken(NamedTuple):
    """One token of a recorded answer: the prompt tokens that the cache provided for `cached` alone, and its
    log-probability with a cached prefix, with a computed one, and computed again."""

    reused: int
    cached: float
    computed: float
    control: float


Probe = Callable[[Sequence[int], int, str], Awaitable[tuple[float, int]]]
"""Forces a token after a prompt; returns its log-probability and the prompt tokens from the cache, which
prompts with the same salt share."""


VERDICTS = {
    None: "No prompt token came from the cache, so it was not compared.",
    True: "Cached and computed prefixes give the same distribution, within the engine's noise.",
    False: (
        "Cached and computed prefixes give DIFFERENT distributions. Do not rely on results with this"
        " cache: set server.flags.enable-prefix-caching to false, or use another version of vLLM."
    ),
}


async def compare_run(run: RecordedRun, tokens: int, status: Status) -> Measurement:
    """Compare recorded tokens of a run with a cached prefix and without; its facts are `shift_figures`.

    Raises:
        InvalidConfig: its model has no token ids.
        StorageError: the run cannot be read or rebuilt.
        ServingError: the engine failed.
    """
    if not run.data.episodes:
        raise RunDirectoryError(f"{run.data.path} has no finished episode to replay yet")
    model_config = completions_api(run.setup.model_config)
    async with open_engine(model_config, run.setup.config, status) as deployment:
        status(f"comparing the log-probabilities of {tokens} recorded tokens")
        compared = await compare_tokens(deployment, run, tokens)
    if not compared:
        return Measurement(f"{run.data.path}: no recorded token could be compared")
    figures = shift_figures(compared, model_config.dtype)
    names = {"cached": "cached and computed", "control": "computed twice", "limit": "counts as noise"}
    rows = [{"shift": text} | figures[part] for part, text in names.items()]
    return Measurement(
        f"{run.data.path}: shift of the log-probability of {figures['tokens']} recorded tokens",
        tables=[Table("", rows, columns("shift", "median:.2g", "p95:.2g", "max:.2g"))],
        facts=figures,
        notes=[VERDICTS[figures["same"]]],
    )


async def compare_tokens(deployment: Deployment, run: RecordedRun, tokens: int) -> list[ForcedToken]:
    """Compare so many recorded tokens with a cached prefix and without. Raises as `compare_run`."""
    found: list[ForcedToken] = []
    salt = secrets.token_hex(8)
    async with deployment.client(lambda row: None, admission=False) as model:
        assert model.tokenizer is not None
        talks = run.conversations(model.tokenizer)
        positions = iter(choose_positions([len(each.ids) for talk in talks for each in talk], tokens))
        chosen = [[(each, next(positions)) for each in talk] for talk in talks]

        async def compare_episode(talk: list[tuple[Answer, set[int]]]) -> None:
            """Send prompt after prompt, as a run does, up to the last one with chosen positions."""
            replica = model.replicas[chosen.index(talk) % len(model.replicas)].address
            probe = partial(probe_engine, model.engine, replica)
            last = max(number for number, (_, wanted) in enumerate(talk) if wanted)
            for (prompt, ids), wanted in talk[: last + 1]:
                await probe(prompt, ids[0], salt)
                found.extend(await compare(probe, prompt, ids, wanted, salt))

        compared = [talk for talk in chosen if any(wanted for _, wanted in talk)]
        await run_together(compare_episode, compared, IN_FLIGHT)
    return found


async def probe_engine(
    engine: Engine, replica: int | None, prompt: Sequence[int], token: int, salt: str
) -> tuple[float, int]:
    """Ask a replica for one token. Raises `ServingError`, as if the engine returns no log-probability."""
    options = {"temperature": 0.0, "allowed_token_ids": [token], "logprobs": 1, "cache_salt": salt}
    labels = {"role": "log_probability"}
    reply = await engine.complete(Prompt([*prompt]), max_tokens=1, labels=labels, replica=replica, **options)
    reply.record("ok", reply.usage)
    found = reply.answer.choices[0].logprobs
    if found is None or not found.token_logprobs or found.token_logprobs[0] is None:
        raise RequestRefused("the engine returns no log-probabilities; start it with --max-logprobs 1")
    return found.token_logprobs[0], reply.usage.cached


def choose_positions(answers: Sequence[int], tokens: int, seed: int = 0) -> list[set[int]]:
    """Choose `tokens` positions at random in answers of these lengths; return those of each answer. Half of
    them are first tokens, right after a cached prefix."""
    rng = Random(seed)
    places = [(answer, position) for answer, length in enumerate(answers) for position in range(length)]
    firsts = [place for place in places if place[1] == 0]
    taken = rng.sample(firsts, min(-(-tokens // 2), len(firsts)))
    rest = sorted({*places} - {*taken})
    taken += rng.sample(rest, min(tokens - len(taken), len(rest)))
    chosen: list[set[int]] = [set() for _ in answers]
    for answer, position in taken:
        chosen[answer].add(position)
    return chosen


async def compare(
    probe: Probe, prompt: list[int], answer: list[int], positions: Collection[int], salt: str
) -> list[ForcedToken]:
    """Compare tokens of an answer with a cached prefix and without. Raises `ServingError`.

    Args:
        salt: the salt with which `prompt` and `answer` were sent.
    """
    places = sorted(position for position in positions if position < len(answer))

    async def measure(position: int) -> ForcedToken:
        ids, token = [*prompt, *answer[:position]], answer[position]
        salts = (salt, secrets.token_hex(8), secrets.token_hex(8))
        probed = await run_together(lambda each: probe(ids, token, each), salts, 3)
        logprobs, (cached, *others) = zip(*probed, strict=True)
        return ForcedToken(max(cached - max(others), 0), *logprobs)

    return list(await run_together(measure, places, len(places) or 1))


def shift_figures(tokens: Sequence[ForcedToken], dtype: str) -> dict[str, Any]:
    """Return the distribution of the shifts, and whether the cache changes it.

    - tokens: how many were compared; reused: prompt tokens that the cache provided for them;
    - cached: median, p95 and max of |cached - computed|; control: the same of |control - computed|;
    - limit: the largest shifts that count as noise;
    - same: whether cached and computed prefixes give the same distribution; `None` if the cache provided
      nothing.
    """
    import numpy as np

    reused = [each for each in tokens if each.reused]
    _, cached, computed, control = np.array(reused or tokens, float).T
    of_cache, of_engine = (
        dict(zip(FLOORS, np.quantile(np.abs(shifts), (0.5, 0.95, 1.0)).tolist(), strict=True))
        for shifts in (cached - computed, control - computed)
    )
    share = 0.01 if dtype == "float32" else 1.0
    limit = {name: max(3 * of_engine[name], share * floor) for name, floor in FLOORS.items()}
    return {
        "tokens": len(cached),
        "reused": sum(each.reused for each in tokens),
        "cached": of_cache,
        "control": of_engine,
        "limit": limit,
        "same": all(of_cache[name] <= limit[name] for name in FLOORS) if reused else None,
    }
