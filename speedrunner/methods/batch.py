"""Select a sleep's input: the newest batch, and the texts that fit into one prompt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

from serving.model_config import Role
from speedrunner.store.history import History
from speedrunner.store.records import Trajectory

if TYPE_CHECKING:
    from serving.model import Model

Overflow = Literal["skip", "fit"]
"""Handling of a prompt that is too long for the model's context. `skip` sends nothing, and nothing is learned
from it (paper, main results); `fit` sends as much as fits, the newest first."""

PartOverflow = Literal["skip", "discard", "fit"]
"""The same for a method that learns from the parts of a batch in separate prompts: `skip` learns nothing from
the part that does not fit, `discard` nothing in the whole sleep, as the paper says of sleeps."""

MARGIN_TOKENS = 1_000
"""Tokens left free with each answer if a prompt is made to fit: for a tool's description, the chat's markup,
and the reply."""


def newest_batch(history: History) -> list[Trajectory]:
    """Return the newest batch's scored episodes; an infrastructure error says nothing about a method."""
    batches = history.batches()
    played = history.batch(batches[-1]) if batches else []
    return [each for each in played if each.outcome is not None]


def select_fitting(texts: Sequence[str], room_tokens: int, count_tokens: Callable[[str], int]) -> list[int]:
    """Return the ascending indices of the texts, oldest first, that fit into a room together. The newest are
    taken first; one that does not fit is skipped."""
    taken: list[int] = []
    for place in reversed(range(len(texts))):
        if (tokens := count_tokens(texts[place])) <= room_tokens:
            room_tokens -= tokens
            taken.insert(0, place)
    return taken


def places(
    texts: Sequence[str], overflow: PartOverflow, model: Model, role: str, *rest: str, answers: int = 1
) -> list[int]:
    """Return the ascending indices of the texts, oldest first, that a role's first prompt shows: all of them,
    or those that fit next to the rest of the prompt and the role's longest answers."""
    if overflow != "fit":
        return list(range(len(texts)))
    settings: Role = model.model_config.role(role)
    answer = settings.thinking_tokens + settings.string_tokens + MARGIN_TOKENS
    room = model.model_config.context - answers * answer - sum(map(model.count_tokens, rest))
    return select_fitting(texts, room, model.count_tokens)
