"""Whether the prefix cache changes answers: `speedrunner bench replay`.

Recorded answers are forced once more, so the cache fills as it does in a run. After each answer, requests for
one token each ask for the log-probability at some of its positions: once with the prefix from the cache, and
twice with the whole prompt computed. The two computed ones show the engine's own noise.

These requests have no grammar, because vLLM 0.32 takes log-probabilities after the grammar's mask. Instead
they allow only the recorded token (`allowed_token_ids`), which vLLM applies after it has taken them. They do
not use `prompt_logprobs`, because vLLM does not read the cache for those.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Collection, Sequence
from random import Random
from typing import Any, NamedTuple

from msgspec.structs import replace

from serving.apis.completions import TokenConversation
from serving.engine.prompt import Prompt
from serving.errors import ContextOverflow, RequestRefused
from serving.model import Model
from serving.together import run_together
from serving.tokens.grammar import constant, structural_tag
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
        ServingError: the engine failed.
    """
    model_config, salt = completions_api(setup.model_config), secrets.token_hex(8)
    episodes, compared = _actor_episodes(data), list[ForcedToken]()
    lengths = [turn.usage.completion for each in episodes for turn in each.turns]
    positions = iter(choose_positions(lengths, tokens))
    chosen = [(each, [next(positions) for _ in each.turns]) for each in episodes]

    async def compare_episode(chosen: tuple[Trajectory, list[set[int]]]) -> None:
        episode, positions = chosen
        last = max(number for number, each in enumerate(positions) if each)
        talk, turns = open_conversation(data, setup, model, episode), episode.turns[: last + 1]
        try:
            places = iter(positions)
            async for prompt, answer in force_answers(talk, replace(episode, turns=turns), model, salt):
                compared.extend(await compare(model, talk, prompt, answer, next(places), salt))
        finally:
            talk.close()

    async with open_engine(model_config, setup.config, status) as deployment:
        status(f"comparing the log-probabilities of {tokens} recorded tokens")
        async with deployment.client(lambda row: None) as model:
            wanted = [each for each in chosen if any(each[1])]
            await run_together(compare_episode, wanted, setup.config.run.in_flight)
    if not compared:
        return Measurement(f"{data.path}: no recorded token could be compared")
    figures = shift_figures(compared, model_config.dtype)
    names = {"cached": "cached and computed", "control": "computed twice", "limit": "counts as noise"}
    rows = [{"shift": text} | figures[part] for part, text in names.items()]
    return Measurement(
        f"{data.path}: shift of the log-probability of {figures['tokens']} recorded tokens",
        tables=[Table("", rows, columns("shift", "median:.2g", "p95:.2g", "max:.2g"))],
        facts=figures,
        notes=[VERDICTS[figures["same"]]],
    )


def _actor_episodes(data: RunData) -> list[Trajectory]:
    """Return a run's finished episodes by policy and start, with the actor's turns only."""
    played = sorted([*data.trajectories(), *data.evaluations()], key=lambda each: (each.policy, each.started))
    found = [
        replace(each, turns=turns)
        for each in played
        if (turns := [turn for turn in each.turns if (turn.role, turn.conversation) == ("actor", 0)])
    ]
    if not found:
        raise RunDirectoryError(f"{data.path} has no finished episode to replay yet")
    return found


def open_conversation(data: RunData, setup: Setup, model: Model, episode: Trajectory) -> TokenConversation:
    """Open an episode's conversation. Raises `RunDirectoryError` unless its first prompt is as long as
    recorded."""
    tools = setup.method.agent(data.policies.load(episode.policy), episode.task, setup.env).list_tools(
        setup.env
    )
    messages, labels = (
        plain_messages(episode.turns[0].messages),
        {"role": "replay", "episode": episode.episode},
    )
    talk = model.converse("actor", messages, tools, labels)
    assert isinstance(talk, TokenConversation)
    recorded, tokens = episode.turns[0].usage.prompt, len(talk.transcript.ids)
    if recorded != tokens:
        talk.close()
        raise RunDirectoryError(
            f"{data.path}: the first prompt of {episode.episode} had {recorded} tokens when it was played,"
            f" and {tokens} now: its templates, environment, method or model have changed"
        )
    return talk


async def force_answers(
    talk: TokenConversation, episode: Trajectory, model: Model, salt: str
) -> AsyncIterator[tuple[list[int], list[int]]]:
    """Play an episode until its end, or until a recorded answer does not fit the context.

    Yields the ids of the prompt and of the answer of each turn. Raises `ServingError`.

    Args:
        salt: each request's `cache_salt`; requests with the same one share the prefix cache.
    """
    for number, turn in enumerate(episode.turns):
        if number:
            talk.tell(turn.messages[0].content)
        prompt = list(talk.transcript.ids)
        if model.model_config.context - len(prompt) < turn.usage.completion:
            return
        talk.transcript.grammar = constant(talk.transcript.written(turn.reasoning, turn.text))
        tag = {"structural_tag": structural_tag(talk.transcript.grammar)}
        talk.options |= {"structured_outputs": tag, "temperature": 0.0, "cache_salt": salt}
        await talk.ready()
        try:
            answer = await talk.ask()
        except ContextOverflow:
            return
        yield prompt, answer.token_ids


async def compare(
    model: Model,
    talk: TokenConversation,
    prompt: list[int],
    answer: list[int],
    positions: Collection[int],
    salt: str,
) -> list[ForcedToken]:
    """Compare tokens of an answer, which was sent with `salt`, with a cached prefix and without.

    Raises `ServingError`, also if the engine returns no log-probabilities.
    """

    async def probe(position: int, salt: str) -> tuple[float, int]:
        reply = await model.engine.complete(
            Prompt([*prompt, *answer[:position]]),
            max_tokens=1,
            labels={"role": "log_probability"},
            replica=talk.replica.address,
            **{
                "temperature": 0.0,
                "allowed_token_ids": [answer[position]],
                "logprobs": 1,
                "cache_salt": salt,
            },
        )
        reply.record("ok", reply.usage)
        found = reply.answer.choices[0].logprobs
        if found is None or not found.token_logprobs or found.token_logprobs[0] is None:
            raise RequestRefused("the engine returns no log-probabilities; start it with --max-logprobs 1")
        return found.token_logprobs[0], reply.usage.cached

    async def compare_token(position: int) -> ForcedToken:
        salts = (salt, secrets.token_hex(8), secrets.token_hex(8))
        probed = await run_together(lambda each: probe(position, each), salts, len(salts))
        logprobs, (cached, *others) = zip(*probed, strict=True)
        return ForcedToken(max(cached - max(others), 0), *logprobs)

    places = sorted(position for position in positions if position < len(answer))
    return await run_together(compare_token, places, len(places) or 1)


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
