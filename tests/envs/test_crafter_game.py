"""The game is upstream's, to the last bit of its state, where upstream's sets are given an order."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import crafter
import numpy as np
import pytest
from crafter import constants, engine

from envs import numba_cache

numba_cache.prepare()

from envs.crafter_game import Game  # noqa: E402
from envs.crafter_world import Draws, Zombie  # noqa: E402

LAST_TICK_OF_DAY, NIGHT, NEXT_DAY = 147, 148, 273


class InsertionOrdered(dict[Any, None]):
    def add(self, obj: Any) -> None:
        self[obj] = None

    def remove(self, obj: Any) -> None:
        del self[obj]


class OrderedWorld(engine.World):  # type: ignore[misc]
    """Upstream's world, but that objects of a chunk are in the order in which they entered it."""

    def reset(self, seed: int | None = None) -> None:
        super().reset(seed)
        self._chunks = defaultdict(InsertionOrdered)


def upstream(seed: int) -> Any:
    env = crafter.Env(seed=seed, length=None)
    env._world.__class__ = OrderedWorld
    env.reset()
    return env


def ours(seed: int, zombie_frequency: float = 1.0) -> Game:
    game = Game(zombie_frequency)
    game.reset(seed)
    return game


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    return [int(each) for each in value] if isinstance(value, (tuple, np.ndarray)) else value


def whole_state(world: Any) -> dict[str, Any]:
    """Everything that the future of a world depends on."""
    _, key, position, *_ = world.random.get_state()
    links = ("world", "player", "random", "x", "y")
    return {
        "materials": world._mat_map.tobytes(),
        "object numbers": world._obj_map.tobytes(),
        "objects": [
            obj and [type(obj).__name__, {k: plain(v) for k, v in vars(obj).items() if k not in links}]
            for obj in world._objects
        ],
        "chunks": [[plain(chunk), [plain(obj.pos) for obj in objs]] for chunk, objs in world._chunks.items()],
        "daylight": float(world.daylight),
        "random": (key.tobytes(), position),
    }


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 8))])
def test_whole_states_are_the_same_through_day_and_night(seed: int) -> None:
    """500 random actions; the game is played on after the player's death, which upstream allows."""
    theirs, game = upstream(seed), ours(seed)
    assert whole_state(game.world) == whole_state(theirs._world)
    for tick, action in enumerate(np.random.RandomState(seed).randint(17, size=500), start=1):
        theirs.step(action)
        game.step(constants.actions[action])
        if tick % 7 == 0 or tick in (LAST_TICK_OF_DAY, NIGHT):
            assert whole_state(game.world) == whole_state(theirs._world), tick
    assert game.player.inventory == theirs._player.inventory
    assert game.player.achievements == theirs._player.achievements


@pytest.mark.parametrize(
    ("seed", "ticks"), [(1, 700), *(pytest.param(s, 2000, marks=pytest.mark.slow) for s in range(3))]
)
def test_so_are_those_of_a_player_with_all_tools_who_gets_about(seed: int, ticks: int) -> None:
    """It digs its way through the caves, builds, plants, and is kept alive: arrows fly, plants are eaten."""
    theirs, game, random = upstream(seed), ours(seed), np.random.RandomState(seed)
    kinds, direction = set(), "move_left"
    for tick in range(ticks):
        for player in (theirs._player, game.player):
            player.inventory.update(dict.fromkeys(player.inventory, 9))
        if tick % 40 == 0:
            direction = str(random.choice(["move_left", "move_right", "move_up", "move_down"]))
        action = str(random.choice([direction, direction, "do", "do", *constants.actions[6:11]]))
        theirs.step(constants.actions.index(action))
        game.step(action)
        kinds |= {type(obj).__name__ for obj in game.world.objects}
        if tick % 20 == 0:
            assert whole_state(game.world) == whole_state(theirs._world), tick
    assert kinds >= {"Player", "Cow", "Zombie", "Skeleton", "Plant"}


class TestNight:
    def test_it_draws_what_rendering_draws_and_day_draws_nothing(self) -> None:
        game = ours(3, zombie_frequency=0)
        for obj in game.world.objects:
            if obj is not game.player:
                game.world.remove(obj)

        def draws_of_a_tick() -> bool:
            before = game.world.random.get_state()
            game.step("noop")
            after = game.world.random.get_state()
            return not (np.array_equal(before[1], after[1]) and before[2] == after[2])

        dark = []
        for tick in range(1, 301):
            game.world._chunks.clear()  # nothing to balance
            if draws_of_a_tick():
                dark.append(tick)
        assert dark == list(range(NIGHT, NEXT_DAY))


class TestZombieFrequency:
    """Paper, Appendix D.6."""

    def test_at_0_the_generated_zombies_are_removed_and_nothing_else(self) -> None:
        without, with_them = whole_state(ours(0, 0.0).world), whole_state(ours(0).world)
        removed = [obj for obj in with_them["objects"] if obj and obj[0] == "Zombie"]
        assert removed
        assert [obj for obj in without["objects"] if obj] == [
            obj for obj in with_them["objects"] if obj and obj not in removed
        ]
        for part in ("materials", "random"):
            assert without[part] == with_them[part]

    @pytest.mark.parametrize("seed", range(3))
    def test_at_0_none_ever_comes(self, seed: int) -> None:
        game = ours(seed, 0.0)
        for action in np.random.RandomState(seed).randint(17, size=600):
            game.step(constants.actions[action])
            assert not any(isinstance(obj, Zombie) for obj in game.world.objects)

    @pytest.mark.parametrize(
        ("frequency", "spawn", "despawn"),
        [(0.5, 0.15, 0.2), (1.0, 0.3, 0.4), (2.0, 0.6, 0.8), (3.0, 0.9, 1.0), (4.0, 1.0, 1.0)],
    )
    def test_probabilities_are_scaled_and_clipped(
        self, frequency: float, spawn: float, despawn: float
    ) -> None:
        def change(draw: float, *, crowded: bool) -> int:
            """Balance once, every chance being this draw. Returns how many zombies come or go."""
            game = ours(0, frequency)
            remove_zombies(game)
            game.world.daylight = np.float64(0.0)
            if crowded:
                crowd(game)
                game.world.daylight = np.float64(1.0)
            before = zombies(game)
            game.world.draws.uniform = lambda: draw
            game._balance()
            return zombies(game) - before

        below = 1e-9
        assert change(spawn - below, crowded=False) > 0
        assert change(spawn, crowded=False) == 0
        assert change(despawn - below, crowded=True) < 0
        assert change(despawn, crowded=True) == 0

    @pytest.mark.parametrize("light", [0.0, 0.5, 1.0])
    @pytest.mark.parametrize("frequency", [0.5, 1.0, 2.0])
    def test_the_number_aimed_at_is_scaled(self, frequency: float, light: float) -> None:
        game = ours(0, frequency)
        remove_zombies(game)
        game.world.daylight = np.float64(light)
        crowd(game)
        roomy = [chunk for chunk in game.world.chunks if game.world.space(chunk, "grass") >= 50]
        assert len(roomy) > 5
        for chunk in roomy:
            found = sum(isinstance(obj, Zombie) for obj in game.world.chunks[chunk])
            assert found == int(frequency * (3.5 - 3 * light))


def crowd(game: Game) -> None:
    """Let creatures come, and none go, until there are as many as are aimed at."""
    drawn, game.world.draws.uniform = game.world.draws.uniform, lambda: 0.0
    for obj in game.world.objects:
        if not isinstance(obj, Zombie) and obj is not game.player:
            game.world.remove(obj)  # it might stand in the way
    for _ in range(100):
        game._balance()
    game.world.draws.uniform = drawn


def remove_zombies(game: Game) -> None:
    for obj in game.world.objects:
        if isinstance(obj, Zombie):
            game.world.remove(obj)


def zombies(game: Game) -> int:
    return sum(isinstance(obj, Zombie) for obj in game.world.objects)


def test_single_draws_are_numpys() -> None:
    bits = np.random.MT19937()
    random = np.random.RandomState(bits)
    random.seed(7)
    draws, numpys = Draws(bits, random), np.random.RandomState(7)
    for _ in range(50):
        for high in (1, 2, 3, 4, 5, 8, 100, 144):
            assert draws.randint(0, high) == numpys.randint(0, high)
            assert draws.uniform() == numpys.uniform()
    assert draws.randint(10, 15) == numpys.randint(10, 15)
