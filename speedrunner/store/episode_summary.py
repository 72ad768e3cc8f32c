"""Summarize an episode as a row, with the calls that an agent repeats and whose reply it reads again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from speedrunner.store.records import CallNode, EpisodeRow, Phase, Trajectory, Turn

NOTHING = "None"
"""The reply of a call that returned nothing, such as an action in Crafter. It does not say whether the world
changed, so it is no repeated result."""

MANY_REPEATS = 1 / 3
"""Share of calls that repeat the call before them, above which people are told."""


def summarize_episode(trajectory: Trajectory, phase: Phase, checkpoint: int) -> EpisodeRow:
    """Return the summary row of a whole episode."""
    executed = [turn.executed for turn in trajectory.turns if turn.executed is not None]
    outcome = trajectory.outcome
    return EpisodeRow(
        episode=trajectory.episode,
        phase=phase,
        checkpoint=checkpoint,
        task=trajectory.task,
        policy=trajectory.policy,
        attempt=trajectory.attempt,
        termination=trajectory.termination,
        score=None if outcome is None else outcome.score,
        success=None if outcome is None else outcome.success,
        llm_calls=len(trajectory.turns),
        actions=sum(node.actions for node in executed),
        skill_calls=sum(node.kind == "skill" for node in executed),
        invalid_calls=sum(turn.call is None for turn in trajectory.turns),
        usage=trajectory.usage,
        seconds=trajectory.seconds,
        repeated_calls=count_repeats(trajectory.turns),
    )


class Exchange(NamedTuple):
    """A turn and the reply that the agent read after it.

    Attributes:
        reply: `None` if no turn of the same conversation follows.
    """

    turn: Turn
    reply: str | None

    def is_same(self, other: Exchange) -> bool:
        """Return whether both made the same call with the same result, or no valid call with the same
        error.

        Calls are the same if name, arguments, result, error and reply are equal. The reply also shows what a
        skill did in the world. A missing reply equals any other.
        """
        one, two = self.turn.executed, other.turn.executed
        if one is None or two is None:
            return one is two and (self.turn.call, self.turn.error) == (other.turn.call, other.turn.error)
        replies = {self.reply, other.reply} - {None}
        if len(replies) > 1 or NOTHING in replies:
            return False
        return _outline(one) == _outline(two)

    def repeats(self, before: Exchange | None) -> bool:
        """Return whether it executed the same call as the exchange before it, with the same result."""
        return before is not None and self.turn.executed is not None and self.is_same(before)


def list_exchanges(turns: Sequence[Turn]) -> list[Exchange]:
    """Return the turns of an episode with their replies, in the same order."""
    exchanges: list[Exchange] = []
    replies: dict[int, str] = {}
    for turn in reversed(turns):
        exchanges.append(Exchange(turn, replies.get(turn.conversation)))
        if turn.messages:
            replies[turn.conversation] = turn.messages[-1].content
    return exchanges[::-1]


def count_repeats(turns: Sequence[Turn]) -> int:
    """Return the number of calls of an episode that repeat the call before them in their conversation."""
    count, last = 0, dict[int, Exchange]()
    for exchange in list_exchanges(turns):
        count += exchange.repeats(last.get(exchange.turn.conversation))
        last[exchange.turn.conversation] = exchange
    return count


def _outline(node: CallNode) -> tuple[Any, ...]:
    return node.name, node.arguments, node.result, node.error
