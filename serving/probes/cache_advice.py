"""What is wrong with a server's prefix cache, and conversations that show it."""

from __future__ import annotations

from serving.cards import ModelCard
from serving.engine.metrics import CacheConfig
from serving.model import Model
from serving.probes.tool_battery import battery
from serving.tokens.tools import ToolSpec

OTHERS = "other requests may have pushed it out of the cache meanwhile: probe an idle server"


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
    return list(battery()[1].tools)


def text_of(model: Model, name: str, tokens: int) -> str:
    """A text that begins with `name` and has about so many tokens, never fewer."""
    line = f"{name} was seen here; go on, and say what else there is.\n"
    return line * -(-tokens // model.count_tokens(line))
