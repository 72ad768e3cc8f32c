"""Log-probabilities of recorded tokens, with a cached prefix and without: part of `speedrunner bench replay`.

Recorded answers are forced once more, so the cache fills as it does in a run. After each answer, requests for
one token each ask for the log-probability at some of its positions: once with the prefix from the cache, and
twice with the whole prompt computed. The two computed ones show the engine's own noise.

These requests have no grammar, because vLLM 0.32 takes log-probabilities after the grammar's mask. Instead
they allow only the recorded token (`allowed_token_ids`), which vLLM applies after it has taken them. They do
not use `prompt_logprobs`, because vLLM does not read the cache for those.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Collection, Sequence
from random import Random
from typing import Any, NamedTuple

from serving.engine.client import Engine
from serving.engine.prompt import Prompt
from serving.errors import RequestRefused
from serving.together import run_together
from speedrunner.bench.measurement import Measurement, Table, columns

FACTOR = 3.0
"""Shifts up to this multiple of the control's count as the engine's noise."""

FLOORS = {"median": 0.02, "p95": 0.1, "max": 1.0}
"""Shifts (natural logarithm) that always count as noise, for 16-bit weights; a hundredth for 32 bits. An
engine adds numbers in another order when it computes another part of a prompt, and a control that repeats the
same request does not show that. Chosen, not measured."""

VERDICTS = {
    None: "no prompt token came from the cache, so it was not compared.",
    True: "cached and computed prefixes give the same distribution, within the engine's noise.",
    False: (
        "cached and computed prefixes give DIFFERENT distributions. Do not rely on results with this"
        " cache: set server.flags.enable-prefix-caching to false, or use another version of vLLM."
    ),
}


class TokenProbe(NamedTuple):
    """The answer to a request for one token: its log-probability, and the prompt tokens from the cache."""

    logprob: float
    reused: int


class ForcedToken(NamedTuple):
    """One token of a recorded answer: its number, the prompt tokens that the cache provided for `cached`
    alone, and its log-probability with a cached prefix, with a computed one, and computed again."""

    position: int
    reused: int
    cached: float
    computed: float
    control: float


Probe = Callable[[Sequence[int], int, str], Awaitable[TokenProbe]]
"""Forces a token after a prompt; prompts with the same salt share the prefix cache."""

Positions = dict[str, dict[int, set[int]]]
"""Positions to compare, by episode and number of the turn."""


async def probe_engine(
    engine: Engine, replica: int | None, prompt: Sequence[int], token: int, salt: str
) -> TokenProbe:
    """Ask a replica for one token, without a grammar. Raises `ServingError`; `RequestRefused` if the engine
    returns no log-probability."""
    reply = await engine.complete(
        Prompt(list(prompt)),
        max_tokens=1,
        labels={"role": "log_probability"},
        replica=replica,
        temperature=0.0,
        allowed_token_ids=[token],
        logprobs=1,
        cache_salt=salt,
    )
    reply.record("ok", reply.usage)
    found = reply.answer.choices[0].logprobs
    if found is None or not found.token_logprobs or found.token_logprobs[0] is None:
        raise RequestRefused("the engine returns no log-probabilities; start it with --max-logprobs 1")
    return TokenProbe(found.token_logprobs[0], reply.usage.cached)


def choose_positions(answers: dict[str, list[int]], tokens: int, seed: int = 0) -> Positions:
    """Choose `tokens` positions at random: half of them first tokens of answers, right after a cached prefix.

    Args:
        answers: for each episode, the tokens of its answers.
    """
    rng, chosen = Random(seed), Positions()
    places = [
        (episode, turn, position)
        for episode, lengths in answers.items()
        for turn, length in enumerate(lengths)
        for position in range(length)
    ]
    firsts = [place for place in places if place[2] == 0]
    taken = rng.sample(firsts, min(-(-tokens // 2), len(firsts)))
    rest = sorted(set(places) - set(taken))
    taken += rng.sample(rest, min(tokens - len(taken), len(rest)))
    for episode, turn, position in taken:
        chosen.setdefault(episode, {}).setdefault(turn, set()).add(position)
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
        cached, computed, control = await run_together(lambda each: probe(ids, token, each), salts, 3)
        reused = max(cached.reused - max(computed.reused, control.reused), 0)
        return ForcedToken(position, reused, cached.logprob, computed.logprob, control.logprob)

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
    _, _, cached, computed, control = np.array(reused or tokens, float).T

    def spread(shifts: np.ndarray) -> dict[str, float]:
        found = np.quantile(np.abs(shifts), (0.5, 0.95, 1.0))
        return dict(zip(FLOORS, map(float, found), strict=True))

    of_cache, of_engine = spread(cached - computed), spread(control - computed)
    share = 0.01 if dtype == "float32" else 1.0
    limit = {name: max(FACTOR * of_engine[name], share * floor) for name, floor in FLOORS.items()}
    return {
        "tokens": len(cached),
        "reused": sum(each.reused for each in tokens),
        "cached": of_cache,
        "control": of_engine,
        "limit": limit,
        "same": all(of_cache[name] <= limit[name] for name in FLOORS) if reused else None,
    }


def add_shifts(found: Measurement, method: str, figures: dict[str, Any]) -> None:
    """Add the table of a method's shifts and the verdict."""
    names = {"cached": "cached and computed", "control": "computed twice", "limit": "counts as noise"}
    rows = [{"shift": text} | figures[name] for name, text in names.items()]
    title = f"{method}: shift of the log-probability of {figures['tokens']} recorded tokens"
    found.tables.append(Table("", rows, columns("shift", "median:.2g", "p95:.2g", "max:.2g"), title=title))
    found.notes.append(f"{method}: {VERDICTS[figures['same']]}")
