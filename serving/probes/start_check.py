"""Checks a server before the first episode: its tool calls are valid, and its prefix cache works."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from serving.deployment import Say
from serving.engine.capacity import CacheConfig
from serving.engine.client import run_together
from serving.engine.metrics import read_counters
from serving.errors import ContextOverflow, ServerFailed
from serving.model import Model
from serving.model_config import ModelConfig, Role, Roles
from serving.options import Check
from serving.probes.tool_battery import LABELS, ProbeAnswer, ToolProbe, answer_probe, battery
from serving.tokens.tools import ToolSpec

KINDS = ("quotes", "enum", "optional", "nested")
"""Probes of the battery that are sent. They cover each kind of grammar with short prompts and answers.
`speedrunner bench probe tools` sends the whole battery."""

STRING_TOKENS = 16
THINKING_TOKENS = 16
"""Budgets of the calls. The grammars are of the same kinds as a run's."""

LEAST_PROMPT = 256
"""Least tokens of the prompt that is sent twice; it is longer if blocks are large."""

SHOWN_EVERY_S = 1.0
"""Seconds between two lines about a check that is running."""

OTHERS = "other requests may have evicted it from the cache, or the cache is too small: probe an idle server"

T = TypeVar("T")


@dataclass
class Requests:
    """The requests of a check: which are answered, and how long the others have been waited for.

    Attributes:
        sent: start of each request that waits for its answer, in monotonic seconds.
    """

    answered: list[str] = field(default_factory=list)
    sent: dict[str, float] = field(default_factory=dict)

    async def wait(self, name: str, answer: Awaitable[T]) -> T:
        """Wait for the answer to one request. Raises its errors."""
        self.sent[name] = time.monotonic()
        found = await answer
        self.sent.pop(name)
        self.answered.append(name)
        return found

    def __str__(self) -> str:
        now = time.monotonic()
        waiting = ", ".join(f"{name} for {now - began:.0f} s" for name, began in self.sent.items())
        return f"answered: {', '.join(self.answered) or 'none'}; waiting: {waiting or 'none'}"


class StartCheck:
    """Checks one engine before its first episode, once for all runs of this process that share it.

    Args:
        mode: `serving.check`.
        say: called with a line when a check begins, is skipped, or is interrupted.
        waiting: called with a line each second while the check runs.
    """

    def __init__(self, mode: Check, say: Say, waiting: Say) -> None:
        self._mode = mode
        self._say = say
        self._waiting = waiting
        self._one_at_a_time = asyncio.Lock()
        self._is_done = False

    async def require(self, model: Model) -> None:
        """Check the engine with `model`, unless it was checked before or the mode skips it.

        Nothing is checked on the chat API, where an invalid call is data.

        Raises:
            ServerFailed, ServingError: as `check_engine`.
        """
        if model.model_config.api != "completions":
            return
        async with self._one_at_a_time:
            if self._is_done:
                return
            where = model.engine.endpoint
            if self._mode == "never":
                self._say(
                    f"serving.check=never: skipping the check of tool calls and prefix cache of {where}"
                )
            else:
                self._say(f"checking tool calls and prefix cache of {where}")
                requests = Requests()
                showing = asyncio.create_task(self._show(requests))
                try:
                    await check_engine(model, requests)
                except asyncio.CancelledError:
                    self._say(f"the check of {where} was interrupted; {requests}")
                    raise
                finally:
                    showing.cancel()
            self._is_done = True

    async def _show(self, requests: Requests) -> None:
        while True:
            await asyncio.sleep(SHOWN_EVERY_S)
            self._waiting(f"checking tool calls and prefix cache; {requests}")


async def check_engine(model: Model, requests: Requests) -> None:
    """Check that a run can rely on an engine on the completions API.

    Its calls of the tools in `KINDS` must be valid. If the model config has a prefix cache, the second of two
    requests must report that the first one's prompt was cached. `requests` receives what is sent.

    Raises:
        ServerFailed: the check failed; the message says why, and what to change.
        ServingError: the engine failed.
    """
    await _check_calls(model, requests)
    cache = model.replicas[0].cache
    if cache is not None and model.model_config.server.flags.get("enable-prefix-caching", True) is not False:
        await _check_cache(model, cache, requests)


def _quick(role: Role) -> Role:
    return msgspec.structs.replace(
        role, string_tokens=STRING_TOKENS, thinking_tokens=min(role.thinking_tokens, THINKING_TOKENS)
    )


async def _check_calls(model: Model, requests: Requests) -> None:
    role = _quick(model.model_config.role("actor"))
    probes = [probe for probe in battery() if probe.kind in KINDS]

    async def send(probe: ToolProbe) -> ProbeAnswer:
        return await requests.wait(probe.kind, answer_probe(model, role, probe))

    answers = await run_together(send, probes, len(probes))
    invalid = [each for each in answers if each.validity == "invalid"]
    # An answer without ids met the end of the context, which says nothing about the engine.
    cut = [each for each in answers if each.validity == "truncated" and each.token_ids]
    if first := next(iter([*invalid, *cut]), None):
        fails = "does not enforce the grammar of tool calls" if invalid else "ends tool calls too early"
        how = "start vLLM 0.32 with --structured-outputs-config.backend xgrammar"
        if not invalid:
            how = "it limits answers (--override-generation-config), or ignores the grammar"
        raise ServerFailed(
            f"the engine at {model.engine.endpoint} {fails} ({len(invalid)} of {len(answers)} are invalid,"
            f" {len(cut)} truncated): the answer to probe {first.probe.kind!r} is {first.validity}"
            f" ({first.problem}); {how}; try `speedrunner bench probe tools`"
        )


async def _check_cache(model: Model, told: CacheConfig, requests: Requests) -> None:
    counted = await read_counters(model.engine.endpoint)
    text = text_of(model, "A lamp", max(LEAST_PROMPT, 2 * told.match_unit))
    role = _quick(model.model_config.role("actor"))
    talk = model.with_roles(Roles(role, role)).converse(
        "actor", [{"role": "user", "content": text}], note_tools(), LABELS
    )
    try:
        first = (await requests.wait("first prompt", talk.ask())).usage
        talk.tell("Go on.")
        second = (await requests.wait("longer prompt", talk.ask())).usage
    except ContextOverflow:
        return  # as above
    finally:
        talk.close()
    if second.cached:
        return
    hits = (await read_counters(model.engine.endpoint) - counted).cached > 0
    why = "; ".join(advice(model.model_config, told, hits, reported=False)) or OTHERS
    raise ServerFailed(
        f"the engine at {model.engine.endpoint} reports no cached tokens where {first.prompt} of a"
        f" prompt's {second.prompt} tokens had just been sent: {why} (to run without a cache, set"
        " server.flags.enable-prefix-caching: false in the model config)"
    )


def advice(model_config: ModelConfig, cache: CacheConfig, hits: bool, reported: bool) -> list[str]:
    """Return what is wrong with a server's prefix cache settings, one line each.

    Args:
        hits: whether the engine's own counters show cached tokens.
        reported: whether its answers do.
    """
    if not cache.enable_prefix_caching:
        return ["its prefix cache is off: start it with --enable-prefix-caching"]
    found = []
    if hits and not reported:
        found.append("it does not report cached tokens: start it with --enable-prompt-tokens-details")
    if cache.hybrid and cache.match_unit == cache.block_size:
        found.append(
            f"hits end at whole blocks of {cache.block_size} tokens: a hybrid model needs"
            " --prefix-match-unit 16, so that a turn resumes where the last prompt ended"
        )
    if cache.hybrid and not model_config.gpus and (not hits or "block-size" not in model_config.server.flags):
        found.append(
            f"on a CPU, a hybrid model needs the block size that vLLM chose for it: --block-size"
            f" {cache.block_size} (logged as 'Setting attention block size to ...')"
        )
    return found


def note_tools() -> list[ToolSpec]:
    """Return tools with calls that are short texts, or have no arguments."""
    return next(list(probe.tools) for probe in battery() if probe.kind == "quotes")


def text_of(model: Model, name: str, tokens: int) -> str:
    """Return a text that starts with `name` and has about this many tokens, never fewer."""
    line = f"{name} was seen here; go on, and say what else there is.\n"
    return line * -(-tokens // model.count_tokens(line))
