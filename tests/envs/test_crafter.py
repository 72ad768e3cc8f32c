"""Crafter in text is upstream's game, world for world, in the paper's words, in every process."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from envs import (
    EpisodeOver,
    Task,
    make,
    splits,
)
from envs.crafter import Crafter, describe
from tests.envs.conformance import check_environment

ROOT = Path(__file__).parents[2]
PRIMITIVES = [
    *("move_north", "move_south", "move_east", "move_west", "do", "sleep", "noop"),
    *("place_stone", "place_table", "place_furnace", "place_plant"),
    *("make_wood_pickaxe", "make_stone_pickaxe", "make_iron_pickaxe"),
    *("make_wood_sword", "make_stone_sword", "make_iron_sword", "get_current_observation"),
]


def recorded(file: str) -> dict[str, Any]:
    with gzip.open(ROOT / "tests/data" / file) as content:
        recording: dict[str, Any] = json.load(content)
    return recording


BY_DAY = recorded("crafter.json.gz")["episodes"]
BY_NIGHT = recorded("crafter_night_entry_order.json.gz")["episodes"]
LETTERS = recorded("crafter.json.gz")["meta"]["map_letters"]


def start(index: int = 3, **options: Any) -> Any:
    env = make("crafter", **options)
    env.reset(Task("crafter", "default", index))
    return env


def label(episode: dict[str, Any]) -> str:
    return f"{episode['group']}-{episode['seed']}"


def checked(env: Crafter, state: dict[str, Any]) -> dict[str, Any]:
    """What a snapshot has in common with a recorded state; both are compared on it."""
    snapshot = env.snapshot()
    snapshot["crafter_step"] = snapshot.pop("step")
    return {key: value for key, value in snapshot.items() if key in state}


@pytest.mark.process
def test_it_keeps_to_the_interface() -> None:
    check_environment("crafter", {"view": "all", "zombie_frequency": 2.0}, calls=40)


def check_world(env: Any, world: dict[str, Any]) -> None:
    assert checked(env, world["after_reset"]) == world["after_reset"]
    game, letters = env._game, {name: letter for letter, name in LETTERS.items()}
    rows = ["".join(letters[game.world[x, y][0]] for x in range(64)) for y in range(64)]
    assert rows == world["map_rows"]
    objects = [[type(obj).__name__.lower(), *map(int, obj.pos)] for obj in game.world.objects]
    assert objects == world["objects"]


def check_text(env: Any, state: dict[str, Any]) -> None:
    """The original sees two rows less, orders the blocks otherwise, and puts empty lines between them."""
    lines = describe(env.snapshot(), "all").splitlines()[1:-1]
    text = [line for line in lines if not line.startswith("You have unlocked: ")]
    rows_of_both = [line for line in text if not re.search("4 steps (north|south)", line)]
    sentence, _, sight = state["text_precise"].rpartition("\n\n\n\n")
    lines = [sentence.replace("able take", "able to take"), *state["text_status"].splitlines()]
    lines += sight.splitlines()
    assert rows_of_both == [line for line in lines if line], state["crafter_step"]


class TestRecordingsOfTheOriginal:
    @pytest.mark.parametrize("episode", BY_DAY + BY_NIGHT, ids=label)
    def test_worlds_states_ends_and_texts_are_the_same(self, episode: dict[str, Any]) -> None:
        env, by_day = start(episode["seed"]), episode in BY_DAY
        if by_day:
            check_world(env, episode["world"])
        for action, state in zip(["Noop", *episode["actions"]], episode["states"], strict=True):
            assert env.call(action.lower().replace(" ", "_")) is None
            expected = {key: state[key] for key in checked(env, state)}
            assert len(expected) == 13
            assert checked(env, state) == expected, state["crafter_step"]
            assert env.done is state["done"]
            if by_day:
                check_text(env, state)
        assert env.outcome().score == len(episode["states"][-1]["achievements"]) / 22


class TestActing:
    def test_each_advancing_primitive_takes_one_tick_and_reading_none(self) -> None:
        env = start()
        for tick, name in enumerate(PRIMITIVES[:-1], start=1):
            assert env.call(name) is None
            assert env.outcome().detail["steps"] == tick
        env.call("get_current_observation")
        assert env.outcome().detail["steps"] == len(PRIMITIVES) - 1


class TestEnding:
    def test_the_player_s_death_ends_it_scored_as_it_stands(self) -> None:
        episode = next(played for played in BY_DAY + BY_NIGHT if played["states"][-1]["done"])
        env = start(episode["seed"])
        for action in ["Noop", *episode["actions"]]:
            assert not env.done
            env.call(action.lower().replace(" ", "_"))
            assert env.free_observation() is None or env.done
        assert env.done
        assert "- health: 0/9" in (env.free_observation() or "")  # the primitive that reads it is refused
        before = env.outcome()
        assert before.detail["dead"]
        for name in ("noop", "get_current_observation"):
            with pytest.raises(EpisodeOver):
                env.call(name)
        assert env.outcome() == before

    def test_the_score_is_the_share_of_the_22_achievements(self) -> None:
        env = start()
        assert (env.outcome().score, env.outcome().success) == (0.0, False)
        achievements = env._game.player.achievements
        assert len(achievements) == 22
        achievements.update(collect_wood=3, wake_up=1)
        assert env.outcome().score == 2 / 22
        assert env.outcome().detail["achievements"] == ["Collect Wood", "Wake Up"]
        achievements.update(dict.fromkeys(achievements, 1))
        assert (env.outcome().score, env.outcome().success) == (1.0, True)


class TestSplits:
    def test_each_seed_gives_fixed_worlds_all_different(self) -> None:
        worlds, hashes = list[int](), []
        for seed in (0, 1, 2):
            split = splits("crafter", seed=seed)
            assert (len(split.train), len(split.test)) == (200, 30)
            assert {(task.env, task.name) for task in split.train + split.test} == {("crafter", "default")}
            worlds += [task.index for task in split.train + split.test]
            hashes.append(hashlib.sha256(str(worlds[-230:]).encode()).hexdigest()[:16])
        assert hashes == ["dfb28d26d6ff93f8", "39cf79be39e2695a", "d0bdfe7d2172a894"]
        assert len(set(worlds)) == 690
        assert splits("crafter") == splits("crafter", seed=0, zombie_frequency=0.0)
