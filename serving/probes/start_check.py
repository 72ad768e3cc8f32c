"""What a run makes sure of before its first episode: calls are valid, and the prefix cache works."""

from __future__ import annotations

import msgspec

from serving.engine.metrics import CacheConfig, read_counters
from serving.errors import ContextOverflow, ServerFailed
from serving.model import Model
from serving.model_card import ModelCard, Role
from serving.probes.tool_battery import LABELS, OpenProbe, as_role, battery
from serving.together import together
from serving.tokens.tools import ToolSpec

STRING_TOKENS = 16
THINKING_TOKENS = 16
"""Budgets of the calls: grammars of the same kinds as a run's, in a second or two."""

LEAST_PROMPT = 256
"""Tokens of the prompt that is sent twice; more where blocks are large."""

OTHERS = "other requests may have pushed it out of the cache meanwhile: probe an idle server"


async def check_engine(model: Model) -> None:
    """Refuse an engine that does not do what a run on the tokens route counts on.

    Its calls of twelve kinds of tools must be valid; and where the card has a prefix cache, the second of two
    requests must report that the first one's prompt was cached. Takes a few seconds. Nothing is checked on
    other routes, where an invalid call is data.

    Raises:
        ServerFailed: the engine is refused; says why, and what to change.
        ServingError: it failed.
    """
    if model.card.route != "tokens":
        return
    await _check_calls(model)
    cache = model.replicas[0].cache
    if cache is not None and model.card.server.flags.get("enable-prefix-caching", True) is not False:
        await _check_cache(model, cache)


def _quick(role: Role) -> Role:
    return msgspec.structs.replace(
        role, string_tokens=STRING_TOKENS, thinking_tokens=min(role.thinking_tokens, THINKING_TOKENS)
    )


async def _check_calls(model: Model) -> None:
    role = _quick(model.card.role("actor"))
    probes = [OpenProbe(model, role, probe) for probe in battery()]
    for answer in await together(OpenProbe.answer, probes, len(probes)):
        if answer.validity == "truncated" and not answer.token_ids:
            continue  # it does not fit into so small a context, which says nothing about the grammar
        if answer.validity != "valid":
            raise ServerFailed(
                f"the engine at {model.engine.endpoint} does not keep to the grammar of tool calls: the probe"
                f" {answer.probe.kind!r} came back {answer.validity} ({answer.problem}); it must run vLLM"
                " 0.32 with --structured-outputs-config.backend xgrammar; see `speedrunner probe tools`"
            )


async def _check_cache(model: Model, told: CacheConfig) -> None:
    counted = await read_counters(model.engine.endpoint)
    text = text_of(model, "A lamp", max(LEAST_PROMPT, 2 * told.match_unit))
    talk = as_role(model, _quick(model.card.role("actor"))).converse(
        "actor", [{"role": "user", "content": text}], note_tools(), LABELS
    )
    try:
        first = (await talk.ask()).usage
        talk.tell("Go on.")
        second = (await talk.ask()).usage
    except ContextOverflow:
        return  # as above
    finally:
        talk.close()
    if second.cached:
        return
    hits = (await read_counters(model.engine.endpoint) - counted).cached > 0
    why = "; ".join(advice(model.card, told, hits, reported=False)) or OTHERS
    raise ServerFailed(
        f"the engine at {model.engine.endpoint} reports no cached tokens where {first.prompt} of a"
        f" prompt's {second.prompt} had just been sent: {why} (to go without a cache, say so in the model's"
        " card: server.flags.enable-prefix-caching: false)"
    )


def advice(card: ModelCard, cache: CacheConfig, hits: bool, reported: bool) -> list[str]:
    """What is wrong with a server's settings for its prefix cache, one line each.

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
    if cache.hybrid and not card.gpus and (not hits or "block-size" not in card.server.flags):
        found.append(
            f"on a CPU, a hybrid model needs the block size that vLLM chose for it: --block-size"
            f" {cache.block_size} (logged as 'Setting attention block size to ...')"
        )
    return found


def note_tools() -> list[ToolSpec]:
    """Tools whose calls are short texts, or nothing."""
    return next(list(probe.tools) for probe in battery() if probe.kind == "quotes")


def text_of(model: Model, name: str, tokens: int) -> str:
    """A text that begins with `name` and has about so many tokens, never fewer."""
    line = f"{name} was seen here; go on, and say what else there is.\n"
    return line * -(-tokens // model.count_tokens(line))
