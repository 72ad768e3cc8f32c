"""TextWorldExpress through its primitives: its texts, ends and scores, and no list of valid actions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import psutil
import pytest

from envs import EpisodeOver, InvalidOption, InvalidPrimitiveCall, Opening, Task, make, splits
from envs.java_env import SimulatorFailed
from envs.textworld import FOLDS, GAMES, PHRASES, TextWorld
from speedrunner.cli.scaffold.check_environment import check_environment
from tests.golden_tables import Golden, refusals

pytestmark = pytest.mark.process

KITCHEN = Task("textworld", "cookingworld", 0)
UNKNOWN = "Unknown action: I'm not sure what you mean."


@pytest.fixture(scope="module")
def shared() -> Iterator[TextWorld]:
    env = make("textworld")
    assert isinstance(env, TextWorld)
    yield env
    env.close()


@pytest.fixture
def kitchen(shared: TextWorld) -> TextWorld:
    """At the start of a game, next to a closed fridge with a block of cheese that the recipe needs."""
    shared.reset(KITCHEN)
    return shared


def primitive_call(phrase: str) -> tuple[str, dict[str, str]]:
    """Return the primitive that says a phrase of the simulator, with its arguments."""
    for name, known in PHRASES.items():
        if match := re.fullmatch(re.sub(r"{(\w+)}", r"(?P<\1>.+)", known.words), phrase):
            return name, match.groupdict()
    raise ValueError(f"no primitive says {phrase!r}")


def gold_path(env: TextWorld, task: Task) -> list[str]:
    """Return the simulator's own solution. Only tests ask for it."""
    env.reset(task)
    assert env._simulator is not None
    fold = next(name for name, seeds in FOLDS.items() if task.index in seeds)
    env._simulator._ask("generateNewGameJSON", task.index, fold, True)
    return list(env._simulator._interface.getGoldActionSequence())


def act(env: TextWorld, phrase: str) -> str:
    name, arguments = primitive_call(phrase)
    return env.call(name, **arguments)


@pytest.mark.slow
@pytest.mark.parametrize("game", GAMES)
def test_it_keeps_the_contract(game: str) -> None:
    assert check_environment("textworld", {"game": game}, calls=60) == []


class TestSplits:
    def test_they_are_always_the_same(self) -> None:
        split = splits("textworld")
        assert [task.index for task in split.train[:5]] == [654, 114, 25, 759, 281]
        assert split == splits("textworld", description="full")

    def test_no_seed_is_in_both_parts_since_a_fold_does_not_change_a_coin_s_world(
        self, kitchen: TextWorld
    ) -> None:
        assert kitchen._simulator is not None
        first, second = (kitchen._simulator.load("coin", fold, 3) for fold in ("train", "test"))
        assert first == second
        for game in GAMES:
            split = splits("textworld", game=game)
            assert not {task.index for task in split.train} & {task.index for task in split.test}

    def test_the_game_is_one_of_the_three(self) -> None:
        with pytest.raises(InvalidOption, match="option 'game' of textworld"):
            splits("textworld", game="chess")

    def test_the_folds_have_the_simulator_s_seeds(self, kitchen: TextWorld) -> None:
        assert kitchen._simulator is not None
        for fold, seeds in FOLDS.items():
            assert list(kitchen._simulator._ask(f"getSeeds{fold.title()}")) == list(seeds)


class TestTexts:
    def test_an_episode_opens_with_the_task_and_the_place(self, shared: TextWorld) -> None:
        opening = shared.reset(KITCHEN)
        assert opening.instruction.startswith("You are hungry! Let's cook a delicious meal.")
        assert opening.observation.startswith("You are in the kitchen.")
        assert shared.call("look_around") == opening.observation

    def test_no_text_lists_valid_actions(self, kitchen: TextWorld) -> None:
        texts = [act(kitchen, phrase) for phrase in ("inventory", "open fridge", "read cookbook")]
        assert texts[1] == "You open the fridge. The fridge contains a block of cheese."
        assert not any("take block" in text or "valid" in text.lower() for text in texts)
        assert kitchen.free_observation() is None

    def test_an_impossible_action_changes_nothing(self, kitchen: TextWorld) -> None:
        before = kitchen.outcome()
        assert kitchen.call("take", obj="elephant") == UNKNOWN
        assert kitchen.call("close_door", direction="west") == UNKNOWN
        assert (kitchen.outcome(), kitchen.done) == (before, False)


SEEDS = 4
"""Games of each fold whose gold path is played."""


class TestGoldPaths:
    @pytest.mark.parametrize("fold", FOLDS)
    @pytest.mark.parametrize("game", GAMES)
    def test_they_win_with_the_full_score(self, shared: TextWorld, game: str, fold: str) -> None:
        for seed in FOLDS[fold][:SEEDS]:
            task = Task("textworld", game, seed)
            path = gold_path(shared, task)
            shared.reset(task)
            assert shared.outcome().score == 0.0
            for phrase in path:
                if not shared.done:  # some paths continue after the end
                    act(shared, phrase)
            assert (shared.outcome().score, shared.outcome().success, shared.done) == (1.0, True, True)

    def test_no_gold_path_is_computed_for_agents(self, kitchen: TextWorld) -> None:
        assert kitchen._simulator is not None
        assert [*kitchen._simulator._interface.getGoldActionSequence()] == []


class TestEnds:
    def test_a_lost_ingredient_loses_the_game(self, kitchen: TextWorld) -> None:
        for phrase in ("open fridge", "take block of cheese"):
            act(kitchen, phrase)
        assert (kitchen.outcome().score, kitchen.done) == (0.125, False)
        assert act(kitchen, "eat block of cheese").startswith("You eat the block of cheese.")
        lost = kitchen.outcome()
        assert (lost.score, lost.success, lost.detail) == (0.125, False, {"points": 1.0, "lost": True})
        assert kitchen.done
        with pytest.raises(EpisodeOver, match="the game is over"):
            kitchen.call("look_around")
        assert kitchen.outcome() == lost


class TestBadInput:
    def test_it_is_refused_before_the_simulator_reads_it(self, kitchen: TextWorld, golden: Golden) -> None:
        calls: dict[str, tuple[str, dict[str, Any]]] = {
            "an unknown primitive": ("fly", {}),
            "an unknown direction": ("move", {"direction": "up"}),
            "no argument": ("take", {}),
            "a number for text": ("take", {"obj": 3}),
            "a space": ("take", {"obj": " "}),
            "10,240 characters": ("take", {"obj": "x" * 10_240}),
            "two lines": ("put", {"obj": "knife", "target": "stove\nlook around"}),
            "a lone surrogate": ("take", {"obj": "\ud800"}),
        }
        before = kitchen.outcome()
        tries = {what: partial(kitchen.call, name, **given) for what, (name, given) in calls.items()}
        golden("textworld_calls.txt", refusals(tries, InvalidPrimitiveCall))
        assert kitchen.outcome() == before


@pytest.mark.slow
class TestProcess:
    def test_its_death_is_no_score_and_the_next_episode_works(self) -> None:
        env = TextWorld()
        opening = env.reset(KITCHEN)
        before = env.outcome()
        assert env._simulator is not None
        psutil.Process(env._simulator.pid).kill()
        with pytest.raises(SimulatorFailed, match="TextWorldExpress's Java process does not answer"):
            env.call("look_around")
        assert env.outcome() == before
        assert env.reset(KITCHEN) == opening
        env.close()
        assert env.outcome() == before

    def test_it_stays_within_its_memory_over_many_games(self, shared: TextWorld) -> None:
        for seed in range(60):
            for game in GAMES:
                assert isinstance(shared.reset(Task("textworld", game, seed)), Opening)
                for primitive in ("look_around", "inventory"):
                    shared.call(primitive)
        assert shared._simulator is not None
        assert 30_000_000 < shared._simulator.resident_bytes() <= 170_000_000
