"""Whether the prefix cache changes answers: `speedrunner bench replay`.

Recorded answers are forced once more, so the cache fills as it does in a run, with decoded states too. After
each answer, requests for one token each ask for the log-probability of two random tokens of it: once with the
prefix from the cache, and twice with the whole prompt computed. The two computed ones show the engine's own
noise.

These requests have no grammar, because vLLM 0.32 takes log-probabilities after the grammar's mask. Instead
they allow only the recorded token (`allowed_token_ids`), which vLLM applies after it has taken them. They do
not use `prompt_logprobs`, because vLLM does not read the cache for those.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing, suppress
from random import Random
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace

from serving.apis.completions import TokenConversation
from serving.engine.client import Prompt, run_together
from serving.errors import ContextOverflow, RequestRefused
from serving.model import Model
from serving.tokens.grammar import constant, structural_tag
from speedrunner.agents.loop import plain_messages
from speedrunner.bench.engine import completions_api, open_engine
from speedrunner.bench.measurement import MeasuredTable, Measurement
from speedrunner.plain.console import Status
from speedrunner.runs.setup import Setup
from speedrunner.store.records import Trajectory
from speedrunner.store.run_data import RunData
from speedrunner.store.stored_run import RunDirectoryError

FLOORS = {"median": 0.02, "p95": 0.1, "max": 1.0}
"""Shifts (natural logarithm) that always count as noise, for 16-bit weights; a hundredth for 32 bits. So do
shifts up to 3 times the control's. An engine adds numbers in another order when it computes another part of a
prompt, and a control that repeats the same request does not show that. Chosen, not measured."""

VERDICTS = {
    None: "No prompt token came from the cache, so it was not compared.",
    True: "Cached and computed prefixes give the same distribution, within the engine's noise.",
    False: (
        "Cached and computed prefixes give DIFFERENT distributions. Do not rely on results with this"
        " cache: set server.flags.enable-prefix-caching to false, or use another version of vLLM."
    ),
}


class ForcedToken(NamedTuple):
    """One token of a recorded answer: the prompt tokens that the cache provided for `cached` alone, and its
    log-probability with a cached prefix, with a computed one, and computed again."""

    reused: int
    cached: float
    computed: float
    control: float


async def compare_run(data: RunData, setup: Setup, tokens: int, status: Status) -> Measurement:
    """Compare recorded tokens of a run with a cached prefix and without; its facts are `shift_figures`.

    Raises:
        InvalidConfig: its model has no token ids.
        RunDirectoryError: it has no finished episode, or its first prompts have another length now.
        StorageError: the run cannot be read or rebuilt.
        ServingError: the engine failed, or returns no log-probabilities.
    """
    model_config, salt = completions_api(setup.model_config), secrets.token_hex(8)
    compared = list[ForcedToken]()

    async def compare_episode(episode: Trajectory) -> None:
        talk = open_conversation(data, setup, model, episode)

        async def compare_turn(number: int, prompt: list[int], answer: list[int]) -> None:
            for place in draw_places(f"{episode.episode} {number}", len(answer)):
                compared.append(await compare_token(model, talk, [*prompt, *answer[: place + 1]], salt))

        await play_forced(talk, episode, model_config.context, lambda: salt, compare_turn)

    chosen = choose_episodes([*data.trajectories(), *data.evaluations()], tokens)
    if not chosen:
        raise RunDirectoryError(f"{data.path} has no finished episode to replay yet")
    async with open_engine(model_config, setup.config, status) as deployment:
        status(f"comparing the log-probabilities of {tokens} recorded tokens")
        async with deployment.client(lambda row: None) as model:
            await run_together(compare_episode, chosen, setup.config.run.in_flight)
    if not compared:
        return Measurement(f"{data.path}: no recorded token could be compared")
    figures = shift_figures(compared, model_config.dtype)
    names = {"cached": "cached and computed", "control": "computed twice", "limit": "counts as noise"}
    rows = [{"shift": text} | figures[part] for part, text in names.items()]
    return Measurement(
        f"{data.path}: shift of the log-probability of {figures['tokens']} recorded tokens",
        tables=[MeasuredTable("", rows, ("shift", "median:.2g", "p95:.2g", "max:.2g"))],
        facts=figures,
        notes=[VERDICTS[figures["same"]]],
    )


def choose_episodes(played: Sequence[Trajectory], tokens: int) -> list[Trajectory]:
    """Choose random episodes that give so many tokens, two for each turn; return them as the run played them,
    with the actor's turns only, the last one cut."""
    chosen, left = list[Trajectory](), -(-tokens // 2)
    for episode in Random(0).sample(played, len(played)):
        turns = keep_actor(episode).turns[:left]
        chosen += [replace(episode, turns=turns)] if turns else []
        left -= len(turns)
    return sorted(chosen, key=lambda episode: (episode.policy, episode.started))


def keep_actor(episode: Trajectory) -> Trajectory:
    """Return an episode with the turns of its actor's first conversation only."""
    turns = [turn for turn in episode.turns if (turn.role, turn.conversation) == ("actor", 0)]
    return replace(episode, turns=turns)


def draw_places(turn: str, length: int) -> list[int]:
    """Draw two places of an answer. Its first and last tokens alone would show no wrong cache: they are often
    certain, whatever the prefix is."""
    return sorted(Random(turn).sample(range(length), min(2, length)))


def open_conversation(data: RunData, setup: Setup, model: Model, episode: Trajectory) -> TokenConversation:
    """Open an episode's conversation. Raises `RunDirectoryError` unless its first prompt is as long as
    recorded."""
    agent = setup.method.agent(data.policies.load(episode.policy), episode.task, setup.env)
    messages = plain_messages(episode.turns[0].messages)
    labels = {"role": "replay", "episode": episode.episode}
    talk = model.converse("actor", messages, agent.list_tools(setup.env), labels)
    assert isinstance(talk, TokenConversation)
    recorded, tokens = episode.turns[0].usage.prompt, len(talk.transcript.ids)
    if recorded != tokens:
        talk.close()
        raise RunDirectoryError(
            f"{data.path}: the first prompt of {episode.episode} had {recorded} tokens when it was played,"
            f" and {tokens} now: its templates, environment, method or model have changed"
        )
    return talk


async def play_forced(
    talk: TokenConversation,
    episode: Trajectory,
    context: int,
    salt: Callable[[], str],
    note: Callable[[int, list[int], list[int]], Awaitable[None]] | None = None,
) -> None:
    """Let the model write an episode's recorded answers again, until one does not fit the context, and close
    the conversation.

    Args:
        context: tokens of the model's context.
        salt: returns the part of the prefix cache that the next request uses.
        note: called with each turn's number, prompt and answer, as token ids.
    """
    with closing(talk), suppress(ContextOverflow):  # the rest of the episode does not fit
        for number, turn in enumerate(episode.turns):
            if number:
                talk.tell(turn.messages[0].content)
            prompt = list(talk.transcript.ids)
            if context - len(prompt) < turn.usage.completion:
                return
            talk.transcript.grammar = constant(talk.transcript.written(turn.reasoning, turn.text))
            tag = {"structural_tag": structural_tag(talk.transcript.grammar)}
            talk.options |= {"structured_outputs": tag, "temperature": 0.0, "cache_salt": salt()}
            await talk.ready()
            answer = (await talk.ask()).token_ids
            if note is not None:
                await note(number, prompt, answer)


async def compare_token(model: Model, talk: TokenConversation, ids: list[int], salt: str) -> ForcedToken:
    """Compare the last token of `ids`, which were sent with `salt`, with a cached prefix and without.

    Raises `ServingError`, also if the engine returns no log-probabilities.
    """
    options: dict[str, Any] = {"temperature": 0.0, "allowed_token_ids": ids[-1:], "logprobs": 1}

    async def probe(salt: str) -> tuple[float, int]:
        reply = await model.engine.complete(
            Prompt(ids[:-1]),
            max_tokens=1,
            labels={"role": "log_probability"},
            replica=talk.replica.address,
            **options,
            cache_salt=salt,
        )
        reply.record("ok", reply.usage)
        found = reply.answer.choices[0].logprobs
        if found is None or not found.token_logprobs or found.token_logprobs[0] is None:
            raise RequestRefused("the engine returns no log-probabilities; start it with --max-logprobs 1")
        return found.token_logprobs[0], reply.usage.cached

    salts = (salt, secrets.token_hex(8), secrets.token_hex(8))
    logprobs, (cached, *others) = zip(*await run_together(probe, salts, len(salts)), strict=True)
    return ForcedToken(max(cached - max(others), 0), *logprobs)


def shift_figures(tokens: Sequence[ForcedToken], dtype: str) -> dict[str, Any]:
    """Return the distribution of the shifts, and whether the cache changes it.

    - tokens: how many were compared; reused: prompt tokens that the cache provided for them;
    - cached: median, p95 and max of |cached - computed|; control: the same of |control - computed|;
    - limit: the largest shifts that count as noise;
    - same: whether cached and computed prefixes give the same distribution; `None` if the cache provided
      nothing.
    """
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
