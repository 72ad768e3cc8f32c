"""What a sleep reads of the newest batch, and what of many texts fits into one prompt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from serving.model import Model
from serving.model_config import Role
from speedrunner.store.data import History
from speedrunner.store.records import Trajectory

Overflow = Literal["skip", "fit"]
"""What becomes of a prompt that is too long for the model's context: nothing, and nothing is learnt from it
(paper, main results), or as much as fits, the newest first, is sent."""

MARGIN_TOKENS = 1_000
"""Left free with each answer where a prompt is made to fit: for a tool's description, the marks of a chat,
and the reply."""


def newest_batch(history: History) -> list[Trajectory]:
    """The newest batch's episodes that have a score: one that ended by an infrastructure error tells of no
    method.
    """
    batches = history.batches()
    played = history.batch(batches[-1]) if batches else []
    return [each for each in played if each.outcome is not None]


def fitting(texts: Sequence[str], room_tokens: int, count_tokens: Callable[[str], int]) -> list[int]:
    """Which texts, oldest first, fit into a room together: the newest are taken first; one that does not fit
    is passed over. Returns their places, ascending."""
    taken: list[int] = []
    for place in reversed(range(len(texts))):
        if (tokens := count_tokens(texts[place])) <= room_tokens:
            room_tokens -= tokens
            taken.insert(0, place)
    return taken


def places(
    texts: Sequence[str], overflow: Overflow, model: Model, role: str, *rest: str, answers: int = 1
) -> list[int]:
    """Which texts, oldest first, a role's first prompt shows: all of them, or those that fit into the context
    beside the rest of the prompt and the role's longest answers. Ascending."""
    if overflow == "skip":
        return list(range(len(texts)))
    settings: Role = model.model_config.role(role)
    answer = settings.thinking_tokens + settings.string_tokens + MARGIN_TOKENS
    room = model.model_config.context - answers * answer - sum(map(model.count_tokens, rest))
    return fitting(texts, room, model.count_tokens)
