"""Small records for the tests of what a run leaves on disk."""

from __future__ import annotations

from envs import Outcome, Task
from serving.cards import ModelCard
from serving.tokens.tools import ToolCall
from serving.usage import Prices, Usage
from speedrunner.store.records import (
    CallNode,
    Ending,
    Message,
    Process,
    SleepRecord,
    Trajectory,
    Turn,
)

TASK = Task("babyai", "pick_up_seq_go_to", 7)


def trajectory(episode: str = "train/0000", attempt: int = 1, text: str = "hm", **changes) -> Trajectory:
    """Two turns: one whose skill made three moves, one without a valid call."""
    moves = [CallNode("go_forward", "primitive", {}, "a wall", actions=1) for _ in range(3)]
    turns = [
        Turn(
            messages=[Message("system", "rules"), Message("user", "go")],
            text=text,
            usage=Usage(100, 60, 20, 5),
            seconds=0.5,
            call=ToolCall("walk", {"steps": 3}),
            executed=CallNode("walk", "skill", {"steps": 3}, "done", actions=3, calls=moves),
        ),
        Turn(messages=[], text="", usage=Usage(130, 120, 10, 0), seconds=0.25, error="no call"),
    ]
    values = {
        "episode": episode,
        "task": TASK,
        "policy": 0,
        "attempt": attempt,
        "turns": turns,
        "ending": Ending.SUCCESS,
        "outcome": Outcome(1.0, True, {"steps": 3}),
        "seconds": 1.5,
    }
    return Trajectory(**(values | changes))


def sleep(number: int = 1, attempt: int = 1) -> SleepRecord:
    return SleepRecord(sleep=number, rollouts=10, attempt=attempt, agents=[], edits=[], seconds=2.0)


def process(card: ModelCard, inducer: ModelCard | None = None, **prices: Prices) -> Process:
    """What a run of these models was played with; their prices are the cards' own, unless given."""
    cards = (card, inducer or card)
    own = {each.name: each.prices for each in cards}
    return Process(
        started=0.0, host="here", pid=1, actor=cards[0], inducer=cards[1], models={}, env={}, prompts={},
        prices={**own, **prices}, code={}, versions={},
    )  # fmt: skip


def usage_of(record: SleepRecord) -> Usage:
    """Tokens of all turns of a sleep's agents, and of what was played again."""
    turns = [turn for agent in record.agents for turn in agent.turns]
    return sum((each.usage for each in (*turns, *record.attempts)), Usage())
