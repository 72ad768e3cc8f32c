"""BabyAI-Text is BALROG's, world for world and word for word."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from envs import (
    EpisodeOver,
    Opening,
    Task,
    TextEnv,
    make,
    splits,
)
from tests.envs.conformance import check_environment

ROOT = Path(__file__).parents[2]
RECORDINGS: list[dict[str, Any]] = json.loads((ROOT / "tests/data/babyai.json").read_text())["episodes"]
PRIMITIVES = ["turn_left", "turn_right", "go_forward", "pick_up", "drop", "toggle"]


def start(index: int = 100_000, num_dists: int = 0) -> tuple[TextEnv, Opening]:
    env = make("babyai", num_dists=num_dists)
    return env, env.reset(Task("babyai", "pick_up_seq_go_to", index))


def play(env: TextEnv, actions: list[str]) -> list[str | None]:
    return [env.call(action.replace(" ", "_")) for action in actions]


def state(env: TextEnv) -> dict[str, Any]:
    """The world as recordings have it: without its walls, x to the east and y to the south."""
    level: Any = env._level  # type: ignore[attr-defined]
    cells = [(divmod(place, level.width), cell) for place, cell in enumerate(level.grid.grid) if cell]
    return {
        **{"width": level.width, "height": level.height},
        **{"agent_pos": [*map(int, level.agent_pos)], "agent_dir": int(level.agent_dir)},
        "carrying": [level.carrying.type, level.carrying.color] if level.carrying else None,
        "objects": [
            {"type": cell.type, "color": cell.color, "pos": [column, row]}
            for (row, column), cell in cells
            if cell.type != "wall"
        ],
    }


def label(episode: dict[str, Any]) -> str:
    return f"{episode['seed']}-dists{episode['num_dists']}-{episode['policy']}"


@pytest.mark.process
def test_it_keeps_to_the_interface() -> None:
    check_environment("babyai")


class TestRecordingsOfTheOriginal:
    @pytest.mark.parametrize("episode", RECORDINGS, ids=label)
    def test_world_texts_rewards_and_ends_are_the_same(self, episode: dict[str, Any]) -> None:
        env, opening = start(episode["seed"], episode["num_dists"])
        assert opening == Opening(episode["mission"], episode["initial_observation"])
        assert state(env) == episode["initial_state"]
        for number, step in enumerate(episode["steps"], start=1):
            assert play(env, [step["action"]]) == [step["observation"]], number
            assert env.outcome().success is step["reward_positive"], number
            assert env.done is (step["terminated"] or step["truncated"]), number
        assert state(env) == episode["final_state"]
        outcome = env.outcome()
        assert outcome.score == episode["final_progression"]
        assert (outcome.detail["steps"], outcome.detail["max_steps"]) == (
            episode["n_steps"],
            episode["max_steps"],
        )


class TestEnding:
    def test_the_simulators_own_limit_of_steps_ends_the_episode_and_the_outcome_stays(self) -> None:
        env, _ = start()
        play(env, ["drop"] * 127)
        assert not env.done
        play(env, ["drop"])
        assert env.done
        outcome = env.outcome()
        assert (outcome.score, outcome.success) == (0.0, False)
        assert outcome.detail == {"steps": 128, "max_steps": 128, "truncated": True}
        with pytest.raises(EpisodeOver):
            env.call("turn_left")
        assert env.outcome() == outcome


class TestSplits:
    def test_they_are_fixed(self) -> None:
        split = splits("babyai")
        assert [task.index for task in split.train[:5]] == [83810, 14592, 3278, 97196, 36048]
        assert [task.index for task in split.test[:5]] == [2552, 14662, 47576, 40306, 31385]
        seeds = [task.index for task in split.train + split.test]
        assert hashlib.sha256(str(seeds).encode()).hexdigest()[:16] == "c75413f564f63c71"
        assert split == splits("babyai", num_dists=4)

    def test_no_test_world_is_also_a_training_world(self) -> None:
        env, split = make("babyai"), splits("babyai")

        def worlds(tasks: list[Task]) -> list[str]:
            return [json.dumps([env.reset(task).instruction, state(env)]) for task in tasks]

        assert not {*worlds(split.train)} & {*worlds(split.test)}


def test_minigrids_expert_solves_the_training_worlds() -> None:
    from minigrid.utils.baby_ai_bot import BabyAIBot

    env = make("babyai")
    solved = 0
    for task in splits("babyai").train[::4]:
        env.reset(task)
        bot = BabyAIBot(env._level)  # type: ignore[attr-defined]
        while not env.done:
            env.call(PRIMITIVES[bot.replan()])
        solved += env.outcome().success
    assert solved >= 49


@pytest.mark.slow
def test_instructions_that_repeat_and_missions_with_equal_objects_are_as_the_docs_say() -> None:
    env, split = make("babyai"), splits("babyai")
    train, test = ([env.reset(task).instruction for task in own] for own in (split.train, split.test))
    assert sum(instruction in train for instruction in test) == 11
    equal = [
        sum(
            len(names) == 2 and len({*names}) == 1
            for names in (re.findall(r"a (\w+ \w+)", text) for text in own)
        )
        for own in (train, test)
    ]
    assert equal == [8, 3]
