"""Crafter in text: survive and progress in an open world, described in words (paper, Appendix D).

The words follow `balrog/environments/crafter/env.py` of balrog-ai/BALROG, commit af7d1f17e0de, with precise
locations. BALROG's window is 9 x 7 cells, and it shows nothing near the west and north edges.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from envs.text_env import (
    Description,
    EpisodeOver,
    Limits,
    Opening,
    Outcome,
    Primitive,
    Split,
    Task,
    TextEnv,
    describe_offset,
    read_description,
)
from speedrunner.plain.plain_records import read_table

if TYPE_CHECKING:
    from envs.crafter_game import Game

TASKS = ("default",)
READ = "get_current_observation"
ZombieFrequency = Annotated[float, msgspec.Meta(ge=0, le=100)]
"""Above 100, a chunk would aim at more zombies than it has cells."""

WORLD_SEEDS = range(2**31 - 1)

ACTIONS = {row["primitive"]: row for row in read_table(Path(__file__).with_name("crafter_actions.csv"))}
"""Primitives that advance the world, with the effects and requirements that BALROG's agents are also
given."""

ACHIEVEMENTS = tuple(Path(__file__).with_name("crafter_achievements.txt").read_text().splitlines())
"""The order is the paper's."""

INSTRUCTION = "Survive, and unlock as many of the 22 achievements as you can."

View = Literal["nearest", "all"]
RIPE = "ripe "
"""Stands before the name of a plant that can be eaten, as upstream's picture shows and the paper's text does
not."""

BEGIN, END = "<<OBSERVATION_BEGIN>>", "<<OBSERVATION_END>>"
SLEEPING = "You are sleeping, and will not be able to take actions until energy is full."
DEAD = "You died."

VITALS = ("health", "food", "drink", "energy")
SIGHT = 4
"""Cells that the player sees in each direction."""
OUTSIDE = "out"
"""A snapshot's name for a cell beyond the map."""

SEEN: dict[View, str] = {
    "nearest": "the nearest cell of each kind of material, object and creature in the 9 x 9 cells around you "
    "(other cells are not listed)",
    "all": "the achievements that you have unlocked, what is in each of the 9 x 9 cells around you (a plant "
    'that can be eaten is a "ripe plant")',
}
"""Descriptions of what an observation lists, by view."""


class Crafter(TextEnv):
    """The Crafter game of package `crafter`. A seed gives the same world, rules and random draws as upstream.

    It ends an episode itself when the player dies. The world of a task is the first episode of upstream's
    `Env(seed=task.index)`. Upstream depends on the order of memory addresses in some places. Here the order
    is that in which creatures entered their chunk, in every process.

    Args:
        zombie_frequency: scales the number of zombies and how fast they appear and disappear; 1 is upstream's
            game, 0 has none (paper, Appendix D.6).
        view: whether an observation lists the nearest cell of each kind, or all cells in sight, ripe plants
            and unlocked achievements, as upstream's picture and `info` do.
        description: how much the agents' prompts say about the rules.
    """

    name = "crafter"
    limits = Limits(llm_calls=2000, actions=2000)
    ends = "the player died, which is a failure. The achievements unlocked until then count."
    goals = ACHIEVEMENTS
    skills_read = f"{READ}() returns to a skill, at any time, everything that the actor can see."
    memory_mb = 12  # 8 of them in use
    primitives = (
        *(
            Primitive(name, inspect.Signature(return_annotation=None), action["doc"])
            for name, action in ACTIONS.items()
        ),
        Primitive(
            READ,
            inspect.Signature(return_annotation=str),
            "Return your status, your inventory and what you see, as text. Takes no tick.",
            advances=False,
        ),
    )

    def __init__(
        self,
        *,
        zombie_frequency: ZombieFrequency = 1.0,
        view: View = "nearest",
        description: Description = "paper",
    ) -> None:
        achievements = "\n".join(f"{n}. {name}" for n, name in enumerate(ACHIEVEMENTS, start=1))
        text = read_description(__file__, description)
        self.description = text.format(read=READ, achievements=achievements, seen=SEEN[view])
        self._zombie_frequency = zombie_frequency
        self._view = view
        self._game: Game | None = None

    @classmethod
    def splits(cls, *, seed: Annotated[int, msgspec.Meta(ge=0)] = 0) -> Split:
        """Return 200 training and 30 test worlds.

        Args:
            seed: the paper's top-level seed. The paper has three and does not name them; ours are 0, 1 and 2.
        """
        return Split.drawn(cls.name, TASKS[0], WORLD_SEEDS, seed)

    @classmethod
    def preload(cls) -> None:
        """Load the compiled code in advance."""
        env = cls()
        env.reset(Task(cls.name, TASKS[0], 0))
        env.call("noop")

    def reset(self, task: Task) -> Opening:
        """Start a task; its index is the world's seed. Raises `UnknownTask`."""
        self.check_task(task, TASKS)
        if self._game is None:
            from envs.crafter_game import Game  # here, so that splits and options need no package of it

            self._game = Game(self._zombie_frequency)
        self._game.start(task.index)
        return Opening(instruction=INSTRUCTION, observation=self._observation())

    def call(self, name: str, **arguments: Any) -> str | None:
        """Act and return nothing, or read and return the observation."""
        if self._game is None or self.done:
            raise EpisodeOver("the episode is over; reset starts another")
        self.check_call(name, arguments)
        if name == READ:
            return self._observation()
        self._game.act(ACTIONS[name]["upstream"])
        return None

    def free_observation(self) -> str | None:
        """Return the last observation after the player's death: the primitive that reads it is refused."""
        return self._observation() if self.done else None

    @property
    def done(self) -> bool:
        """Whether the player is dead."""
        return self._game is not None and self._game.player.health <= 0

    def outcome(self) -> Outcome:
        """Score the share of the 22 achievements that are unlocked; success means all of them."""
        player = self._started().player
        unlocked = [name for name in ACHIEVEMENTS if player.achievements[name.lower().replace(" ", "_")]]
        detail = {"achievements": unlocked, "steps": self._started().step_count, "dead": self.done}
        share = len(unlocked) / len(ACHIEVEMENTS)
        return Outcome(score=share, success=share == 1, detail=detail)

    def snapshot(self) -> dict[str, Any]:
        """Return the player's state, belongings and view as plain JSON values.

        `window` has nine rows from north to south, each with nine names from west to east, joined by commas:
        the creature or thing on a cell, else the cell's material, or `out` beyond the map. `pos` and `facing`
        are [x, y], where x grows to the east and y to the south.
        """
        game = self._started()
        player, inventory = game.player, game.player.inventory
        x, y = map(int, player.pos)
        ahead = int(player.facing[0]), int(player.facing[1])
        return {
            **{vital: inventory[vital] for vital in VITALS},
            "inventory": {name: n for name, n in inventory.items() if n and name not in VITALS},
            "pos": [x, y],
            "facing": list(ahead),
            "facing_target": _name_cell(*game.world[x + ahead[0], y + ahead[1]]),
            "sleeping": bool(player.sleeping),
            "window": [",".join(_name_cell(*cell) for cell in row) for row in self._cells_in_sight()],
            "achievements": sorted(name for name, times in player.achievements.items() if times),
            "step": game.step_count,
            "daylight": round(float(game.world.daylight), 6),
        }

    def textures(self) -> list[list[str]]:
        """Return the names of upstream's textures for the cells of the snapshot's `window`, row by row:
        `grass`, or `grass.cow` with a creature. Raises `EpisodeOver` before the first reset."""
        return [
            [f"{material or OUTSIDE}.{obj.texture}" if obj else material or OUTSIDE for material, obj in row]
            for row in self._cells_in_sight()
        ]

    def _observation(self) -> str:
        return describe(self.snapshot(), self._view)

    def _cells_in_sight(self) -> list[list[tuple[str | None, Any]]]:
        """Return material and object of each cell in sight, row by row. Both are `None` beyond the map."""
        game = self._started()
        x, y = map(int, game.player.pos)
        sight = range(-SIGHT, SIGHT + 1)
        return [[game.world[x + right, y + down] for right in sight] for down in sight]

    def _started(self) -> Game:
        if self._game is None:
            raise EpisodeOver("there is no episode yet; reset starts one")
        return self._game


def describe(seen: Mapping[str, Any], view: View = "nearest") -> str:
    """Describe a snapshot in words.

    Args:
        seen: a `snapshot`.
        view: "nearest" lists the nearest cell of each kind, the nearest kind first; "all" lists every cell
            but the player's, column by column from the west, names ripe plants, and adds what is unlocked.
            Among equally near cells the western comes first, then the northern.
    """
    lines = [BEGIN]
    if seen["sleeping"]:
        lines.append(SLEEPING)
    elif seen["health"] <= 0:
        lines.append(DEAD)
    lines += ["Your status:", *(f"- {vital}: {seen[vital]}/9" for vital in VITALS)]
    if view == "all":
        unlocked = ", ".join(name.replace("_", " ").title() for name in seen["achievements"])
        lines.append(f"You have unlocked: {unlocked or 'nothing yet'}.")
    if seen["inventory"]:
        lines += ["Your inventory:", *(f"- {name}: {number}" for name, number in seen["inventory"].items())]
    else:
        lines.append("You have nothing in your inventory.")

    rows, sight = [row.split(",") for row in seen["window"]], range(-SIGHT, SIGHT + 1)
    around = [(right, down) for right in sight for down in sight if right or down]
    cells = [(rows[down + SIGHT][right + SIGHT], right, down) for right, down in around]
    cells, front = [cell for cell in cells if cell[0] != OUTSIDE], seen["facing_target"]
    if view == "nearest":
        front = front.removeprefix(RIPE)
        nearest: dict[str, tuple[str, int, int]] = {}
        for cell in sorted(cells, key=lambda cell: abs(cell[1]) + abs(cell[2])):
            nearest.setdefault(cell[0].removeprefix(RIPE), cell)
        cells = [(name, right, down) for name, (_, right, down) in nearest.items()]
    if cells:
        lines.append("You see:")
        for name, right, down in cells:
            offset = describe_offset((down, "south", "north"), (right, "east", "west"))
            lines.append(f"- {name} {offset}")
    else:
        lines.append("You see nothing away from you.")
    return "\n".join([*lines, f"You face {'nothing' if front == OUTSIDE else front} at your front.", END])


def _name_cell(material: str | None, obj: Any) -> str:
    ripe = RIPE * (obj is not None and obj.texture == "plant-ripe")
    return ripe + type(obj).__name__.lower() if obj else material or OUTSIDE
