"""The episodes that an inducer without a code interpreter reads in its prompt (paper, section 6.1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from speedrunner.agents.reading import opening, turns
from speedrunner.methods import Trajectory, headline, trajectory_text

CountTokens = Callable[[str], int]


class ShownEpisodes(NamedTuple):
    """A batch as the prompt shows it.

    Attributes:
        texts: episodes with all or some of their turns, oldest first.
        left_out: headlines of episodes without room for their first and last turn.
        share: tokens of `texts` as a share of those of all whole episodes.
    """

    texts: list[str]
    left_out: list[str]
    share: float


def select_episodes(
    batch: Sequence[Trajectory], room_tokens: int, count_tokens: CountTokens
) -> ShownEpisodes:
    """Fit a batch into a room: whole if possible, else with the middle of its longest episodes left out.

    Each episode gets an equal share of the room; shorter episodes leave the rest of theirs to the others.
    """
    wholes = [trajectory_text(episode) for episode in batch]
    tokens = [count_tokens(text) for text in wholes]
    rooms = dict(enumerate(tokens))
    left = room_tokens
    for position, place in enumerate(sorted(rooms, key=rooms.__getitem__)):
        rooms[place] = min(tokens[place], left // (len(batch) - position))
        left -= rooms[place]
    texts, left_out = [], []
    for place, (episode, whole) in enumerate(zip(batch, wholes, strict=True)):
        fits = tokens[place] <= rooms[place]
        text = whole if fits else _leave_out_middle(episode, rooms[place], count_tokens)
        if text:
            texts.append(text)
        else:
            left_out.append(headline(msgspec.to_builtins(episode)))
    return ShownEpisodes(texts, left_out, sum(map(count_tokens, texts)) / max(sum(tokens), 1))


def _leave_out_middle(episode: Trajectory, room_tokens: int, count_tokens: CountTokens) -> str:
    """Return an episode with as many of its first and last turns as fit; "" if one of each does not fit."""
    plain = msgspec.to_builtins(episode)
    head = f"{headline(plain, has_task=False)}\n{opening(plain)}"
    written = ["\n".join(lines) for lines in turns(plain)]

    def text(first: int, last: int) -> str:
        gap = f"[turns {first + 1} to {len(written) - last} are left out here]"
        return "\n".join([head, *written[:first], gap, *written[len(written) - last :]])

    sizes = [count_tokens(f"{turn}\n") for turn in written]
    shown, used = [0, 0], count_tokens(text(0, 0))
    while sum(shown) < len(written) - 1:
        side = sum(shown) % 2
        size = sizes[len(written) - 1 - shown[1] if side else shown[0]]
        if used + size > room_tokens:
            break
        used += size
        shown[side] += 1
    return text(*shown) if min(shown) else ""
