"""Small records for the tests of what a run leaves on disk."""

from __future__ import annotations

from pathlib import Path

from envs import Outcome, Task
from serving.meter import LedgerRow
from serving.model_config import ModelConfig
from serving.tokens.tools import ToolCall
from serving.usage import Prices, Usage
from speedrunner.store.episode_summary import summarize_episode
from speedrunner.store.records import (
    CallNode,
    Machine,
    Message,
    Policy,
    Process,
    SleepRecord,
    Termination,
    Trajectory,
    Turn,
)
from speedrunner.store.rundir import RunDirectory

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
        "termination": Termination.SUCCESS,
        "outcome": Outcome(1.0, True, {"steps": 3}),
        "seconds": 1.5,
    }
    return Trajectory(**(values | changes))


def sleep(number: int = 1, attempt: int = 1) -> SleepRecord:
    return SleepRecord(sleep=number, rollouts=10, attempt=attempt, agents=[], edits=[], seconds=2.0)


def process(model_config: ModelConfig, **prices: Prices) -> Process:
    """What a run of this model was played with; its prices are the model config's own, unless given."""
    return Process(
        started=0.0, host="here", pid=1, model=model_config, models={},
        env={}, prompts={}, prices={model_config.name: model_config.prices, **prices}, code={}, versions={},
        machine=Machine("a processor", 2, 16.0, []),
    )  # fmt: skip


def usage_of(record: SleepRecord) -> Usage:
    """Tokens of all turns of a sleep's agents, and of what was played again."""
    turns = [turn for agent in record.agents for turn in agent.turns]
    return sum((each.usage for each in (*turns, *record.episodes)), Usage())


def request(episode: str = "train/0000") -> LedgerRow:
    """A row of the ledger."""
    return LedgerRow(
        request="r", retry=0, time=1.0, labels={"episode": episode, "attempt": "1"}, model="m", status="ok",
        wasted=False, usage=None, seconds=1.0,
    )  # fmt: skip


def play(path: Path, episodes: int = 3) -> None:
    """A small run: training episodes, one test episode, one sleep."""
    with RunDirectory.open_for_writing(path) as run:
        run.write_config("run:\n  seed: 1\n")
        run.write_policy(Policy(version=0))
        for number in range(episodes):
            episode = trajectory(f"train/{number:04d}")
            run.append_request(request(episode.episode))
            run.append_trajectory("train", 0, episode)
            run.append_episode(summarize_episode(episode, "train", 0))
        run.append_trajectory("test", 3, trajectory("test/0003/0"))
        run.append_episode(summarize_episode(trajectory("test/0003/0"), "test", 3))
        run.write_sleep(sleep())
        run.mark_finished("sleep/0001")
