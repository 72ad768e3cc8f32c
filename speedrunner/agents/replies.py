"""What the actor is told of an executed call. The same for every method."""

from __future__ import annotations

import msgspec

from speedrunner.hosts.messages import Executed
from speedrunner.sandbox.child.tracebacks import TRACEBACK


def actor_view(executed: Executed, limit_chars: int) -> str:
    """Return the text of the tool reply.

    It is the call's return value or error. Where that does not contain the text of the last primitive,
    the text follows under "Last observation:"; the environment's surroundings come last, unless what has
    been said contains them.

    Args:
        executed: what the host reported, which stays whole on disk.
        limit_chars: characters after which each part is cut, saying so.
    """
    node = executed.node
    parts = []
    if node.error is not None:
        parts.append(_cut(f"Error: {_without_traceback(node.error)}", limit_chars))
    elif node.result is not None or executed.observation is None:
        parts.append(_cut(_text(node.result), limit_chars))
    if executed.observation is not None and not _said(executed.observation, parts, limit_chars):
        parts.append(f"Last observation:\n{_cut(executed.observation, limit_chars)}")
    if executed.surroundings is not None and not _said(executed.surroundings, parts, limit_chars):
        parts.append(_cut(executed.surroundings, limit_chars))
    return "\n\n".join(parts)


def _said(text: str, parts: list[str], limit: int) -> bool:
    """Whether the parts show as much of a text as it would show itself."""
    return any(text[:limit] in part for part in parts)


def _without_traceback(error: str) -> str:
    return error.partition(f"\n{TRACEBACK}\n")[0]


def _text(result: object) -> str:
    if result is None:
        return "None"  # as Python says it: what most primitives of Crafter return (paper, Appendix D.2)
    return result if isinstance(result, str) else msgspec.json.encode(result).decode()


def _cut(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    return f"{text[:limit]}\n[cut here: {len(text) - limit} of {len(text)} characters are not shown]"
