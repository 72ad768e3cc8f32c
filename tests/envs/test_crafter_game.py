"""Zombies as often as the paper's sweep wants them (Appendix D.6). The rest of the game is upstream's."""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from crafter import constants
from crafter.objects import Plant, Zombie

from envs import make
from envs.crafter_game import Game


@cache
def generated(seed: int, zombie_frequency: float) -> Game:
    game = Game(zombie_frequency)
    game.start(seed)
    return game


def started(seed: int, zombie_frequency: float = 1.0) -> Game:
    """A copy of a world at its start, which takes long to generate."""
    return deepcopy(generated(seed, zombie_frequency))


def places(game: Game, kind: str) -> list[list[int]]:
    """Where the objects of a kind, or of all but this kind ("-Zombie"), are."""
    objects = game.world.objects
    return [
        [*map(int, obj.pos)]
        for obj in objects
        if (type(obj).__name__ == kind.removeprefix("-")) != (kind[0] == "-")
    ]


def test_at_0_the_generated_zombies_are_removed_and_nothing_else() -> None:
    without, with_them = started(0, 0.0), started(0)
    assert places(with_them, "Zombie")
    assert places(without, "Zombie") == []
    assert places(without, "-Zombie") == places(with_them, "-Zombie")
    assert (without.world._mat_map == with_them.world._mat_map).all()
    assert without.world.random.random_sample() == with_them.world.random.random_sample()


@pytest.mark.parametrize(
    ("frequency", "spawn", "despawn"),
    [(0.5, 0.15, 0.2), (1.0, 0.3, 0.4), (2.0, 0.6, 0.8), (3.0, 0.9, 1.0), (4.0, 1.0, 1.0)],
)
def test_probabilities_are_scaled_and_clipped(frequency: float, spawn: float, despawn: float) -> None:
    def change(draw: float, *, crowded: bool) -> int:
        """Balance once, every chance being this draw. Returns how many zombies come or go."""
        game = at_light(0.0, frequency)
        if crowded:
            crowd(game)
            game.world.daylight = np.float64(1.0)
        before = len(places(game, "Zombie"))
        balance(game, draw)
        return len(places(game, "Zombie")) - before

    below = 1e-9
    assert change(spawn - below, crowded=False) > 0
    assert change(spawn, crowded=False) == 0
    assert change(despawn - below, crowded=True) < 0
    assert change(despawn, crowded=True) == 0


@pytest.mark.parametrize("light", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("frequency", [0.0, 0.5, 1.0, 2.0])
def test_the_number_aimed_at_is_scaled(frequency: float, light: float) -> None:
    game = at_light(light, frequency)
    crowd(game)
    roomy = [chunk for chunk in game.world.chunks if game.world.mask(*chunk, "grass").sum() >= 50]
    assert len(roomy) > 5
    for chunk in roomy:
        zombies = sum(isinstance(obj, Zombie) for obj in game.world.chunks[chunk])
        assert zombies == int(frequency * (3.5 - 3 * light))


def at_light(light: float, frequency: float) -> Game:
    """A world with nobody in it but the player."""
    game = started(0)
    game._zombie_frequency = frequency
    for obj in game.world.objects:
        if obj is not game.player:
            game.world.remove(obj)
    game.world.daylight = np.float64(light)
    return game


def crowd(game: Game) -> None:
    """Let creatures come, and none go, until there are as many as are aimed at."""
    for _ in range(100):
        balance(game, 0.0)


def balance(game: Game, draw: float) -> None:
    """Balance each chunk once, with this draw for each chance."""
    random: Any = game.world.random
    game.world.random = SimpleNamespace(uniform=lambda: draw, randint=random.randint)
    for chunk, members in game.world.chunks.items():
        game._balance_chunk(chunk, members)
    game.world.random = random


def reach(game: Game, passable: set[str]) -> set[str]:
    """Materials next to a cell that can be entered from the start through these materials."""
    start = tuple(map(int, game.player.pos))
    entered, waiting, touched = {start}, [start], set()
    while waiting:
        x, y = waiting.pop()
        for cell in ((x + 1, y), (x - 1, y), (x, y + 1), (x, y - 1)):
            material, _ = game.world[cell]
            touched.add(material)
            if material in passable and cell not in entered:
                entered.add(cell)
                waiting.append(cell)
    return touched


@pytest.mark.parametrize(("world", "has_diamond"), [(0, True), (719987867, False)])
def test_a_diamond_can_be_out_of_reach(world: int, has_diamond: bool) -> None:
    """On foot and through trees, which become grass; with a pickaxe through rock, with stones over water and
    lava. docs/methods.md counts the test worlds without a diamond."""
    game, on_foot = started(world), {"grass", "sand", "path", "tree"}
    assert {"tree", "stone"} <= reach(game, on_foot)
    found = reach(game, {*constants.materials} - {"diamond"})
    assert {"coal", "iron"} <= found
    assert ("diamond" in found) == has_diamond


class TestTheFullDescription:
    """`env.description=full` has the rules of crafter 1.8.3."""

    RULES = make("crafter", description="full").description

    def wait(self, game: Game, vital: str, action: str = "noop") -> int:
        """Act until a vital changes, and return the ticks."""
        before, start = game.player.inventory[vital], game.step_count
        while game.player.inventory[vital] == before:
            game.act(action)
        return game.step_count - start

    def test_costs_and_requirements(self) -> None:
        placed = {name: info["uses"] for name, info in constants.place.items()}
        assert placed == {
            "stone": {"stone": 1}, "table": {"wood": 2}, "furnace": {"stone": 4}, "plant": {"sapling": 1},
        }  # fmt: skip
        assert "a table takes 2 wood, a furnace 4 stone, a stone 1 stone, a plant 1 sapling." in self.RULES
        for tool in ("pickaxe", "sword"):
            uses = [constants.make[f"{kind}_{tool}"]["uses"] for kind in ("wood", "stone", "iron")]
            assert uses == [{"wood": 1}, {"wood": 1, "stone": 1}, {"wood": 1, "coal": 1, "iron": 1}]
        left = {name: info["leaves"] for name, info in constants.collect.items()}
        assert (left["tree"], left["stone"], constants.collect["grass"]["probability"]) == (
            "grass", "path", 0.1,
        )  # fmt: skip
        assert "a tree gives wood and becomes grass" in self.RULES

    @pytest.mark.parametrize(("vital", "ticks"), [("drink", 21), ("food", 26), ("energy", 31)])
    def test_hunger_thirst_and_fatigue(self, vital: str, ticks: int) -> None:
        assert self.wait(started(0, 0.0), vital) == ticks
        assert "Food, drink and energy fall by 1 every 26, 21 and 31 ticks." in self.RULES

    @pytest.mark.parametrize(
        ("action", "state", "vital", "ticks"),
        [
            ("noop", {"health": 5}, "health", 26),
            ("noop", {"food": 0}, "health", 16),
            ("sleep", {"energy": 3}, "energy", 11),
            ("sleep", {"energy": 0, "health": 5}, "health", 13),
        ],
    )
    def test_recovery_and_sleep(self, action: str, state: dict[str, int], vital: str, ticks: int) -> None:
        game = started(0, 0.0)
        game.player.inventory.update(state)
        game.player._last_health = game.player.health
        assert self.wait(game, vital, action) == ticks

    def test_nights_and_plants(self) -> None:
        game, plant = started(0, 0.0), Plant(started(0, 0.0).world, (0, 0))
        dark = []
        for game._step in range(300):
            game._update_time()
            if game.world.daylight < 0.5:
                dark.append(game._step)
        assert (dark[0], dark[-1], len(dark)) == (148, 272, 125)
        assert "ticks 148 to 272 of each 300" in self.RULES
        plant.grown = 300
        assert not plant.ripe
        plant.update()
        assert plant.ripe

    def test_a_zombie_next_to_the_player(self) -> None:
        game = started(0, 0.0)
        zombie = Zombie(game.world, game.player.pos + np.array([0, 1]), game.player)
        zombie.move = lambda direction: False
        game.world.add(zombie)
        health = []
        for _ in range(8):
            game.act("noop")
            health.append(game.player.health)
        assert health == [7, 7, 7, 7, 7, 7, 5, 5]
        assert "one takes 2 health at once and then every 6 ticks" in self.RULES
