"""Whole trajectories in context, for an inducer without a code interpreter (paper, section 4.1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from speedrunner.agents.trajectory_text import headline, trajectory_lines
from speedrunner.store.records import Trajectory


@dataclass(frozen=True, slots=True)
class Reading:
    """What of a batch is shown.

    Attributes:
        texts: whole episodes, oldest first.
        left_out: a line on each episode that did not fit.
    """

    texts: list[str]
    left_out: list[str]


def reading(batch: Sequence[Trajectory], room_tokens: int, count: Callable[[str], int]) -> Reading:
    """Take whole episodes, the newest first, as long as they fit.

    Args:
        room_tokens: tokens that they may take together.
        count: returns the tokens of a text.
    """
    texts: list[str] = []
    for trajectory in reversed(batch):
        text = "\n".join(trajectory_lines(trajectory))
        room_tokens -= count(text)
        if room_tokens < 0:
            break
        texts.insert(0, text)
    return Reading(texts, [headline(each) for each in batch[: len(batch) - len(texts)]])
