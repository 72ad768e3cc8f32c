"""Checks a server before the first episode: its tool calls are valid, and its prefix cache works."""

from __future__ import annotations

import asyncio

import msgspec

from serving.deployment import Say
from serving.engine.capacity import CacheConfig
from serving.engine.metrics import read_counters
from serving.errors import ContextOverflow, RequestRefused, ServerFailed, TruncatedCall
from serving.model import Model
from serving.model_config import ModelConfig, Roles
from serving.options import Check
from serving.probes.tool_battery import LABELS, battery

TOOLS = next(list(probe.tools) for probe in battery() if probe.kind == "optional")
"""The one tool that is offered: a text, and an integer, an enum and a boolean that may be missing."""

STRING_TOKENS = 16
THINKING_TOKENS = 16
"""Budgets of the calls."""

LEAST_PROMPT = 256
"""Least tokens of the message; it is longer if blocks are large."""

GRAMMAR = "start vLLM 0.32 with --structured-outputs-config.backend xgrammar"
LIMIT = "it limits answers (--override-generation-config), or ignores the grammar"

OTHERS = "other requests may have evicted it from the cache, or the cache is too small: probe an idle server"


class StartCheck:
    """Checks one engine before its first episode, once for all runs of this process that share it.

    Args:
        mode: `serving.check`.
    """

    def __init__(self, mode: Check, say: Say) -> None:
        self._mode = mode
        self._say = say
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
                await check_engine(model)
            self._is_done = True


async def check_engine(model: Model) -> None:
    """Check that a run can rely on an engine on the completions API, by a conversation of two turns.

    Both calls must be valid; `speedrunner bench probe tools` asks for all kinds of arguments. If the model
    config has a prefix cache, the second request must report that the first one's prompt was cached.

    Raises:
        ServerFailed: the check failed; the message says why, and what to change.
        ServingError: the engine failed.
    """
    cache, endpoint = model.replicas[0].cache, model.engine.endpoint
    counted = await read_counters(endpoint)
    role = model.model_config.role("actor")
    role = msgspec.structs.replace(
        role, string_tokens=STRING_TOKENS, thinking_tokens=min(role.thinking_tokens, THINKING_TOKENS)
    )
    text = text_of(model, "A lamp", max(LEAST_PROMPT, 2 * cache.match_unit if cache else 0))
    talk = model.with_roles(Roles(role, role)).converse(
        "actor", [{"role": "user", "content": text}], TOOLS, LABELS
    )
    try:
        first = await talk.ask()
        if first.problem is None:
            talk.tell("Go on.")
        second = first if first.problem else await talk.ask()
    except ContextOverflow:
        return  # says nothing about the engine
    except RequestRefused as error:
        raise ServerFailed(f"the engine at {endpoint} refuses the grammar of tool calls: {error}") from error
    finally:
        talk.close()
    if second.overflows:
        return
    if second.problem is not None:
        fails, how = "does not enforce the grammar of tool calls", GRAMMAR
        if isinstance(second.problem, TruncatedCall):
            fails, how = "ends tool calls too early", LIMIT
        raise ServerFailed(
            f"the engine at {endpoint} {fails} ({second.problem}); {how}; try `speedrunner bench probe tools`"
        )
    has_cache = model.model_config.server.flags.get("enable-prefix-caching", True) is not False
    if cache is None or not has_cache or second.usage.cached:
        return
    hits = (await read_counters(endpoint) - counted).cached > 0
    why = "; ".join(advice(model.model_config, cache, hits, reported=False)) or OTHERS
    raise ServerFailed(
        f"the engine at {endpoint} reports no cached tokens where {first.usage.prompt} of a"
        f" prompt's {second.usage.prompt} tokens had just been sent: {why} (to run without a cache, set"
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
    problems = []
    if hits and not reported:
        problems.append("it does not report cached tokens: start it with --enable-prompt-tokens-details")
    if cache.hybrid and cache.match_unit == cache.block_size:
        problems.append(
            f"hits end at whole blocks of {cache.block_size} tokens: a hybrid model needs"
            " --prefix-match-unit 16, so that a turn resumes where the last prompt ended"
        )
    if cache.hybrid and not model_config.gpus and (not hits or "block-size" not in model_config.server.flags):
        problems.append(
            f"on a CPU, a hybrid model needs the block size that vLLM chose for it: --block-size"
            f" {cache.block_size} (logged as 'Setting attention block size to ...')"
        )
    return problems


def text_of(model: Model, name: str, tokens: int) -> str:
    """Return a text that starts with `name` and has about this many tokens, never fewer."""
    line = f"{name} was seen here; go on, and say what else there is.\n"
    return line * -(-tokens // model.count_tokens(line))
