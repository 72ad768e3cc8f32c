"""Crafter in text: survive and progress in an open world, described in words (paper, Appendix D)."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from envs import crafter_text
from envs.crafter_text import View
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
        return Opening(instruction=INSTRUCTION, observation=self._observation(self._game))

    def call(self, name: str, **arguments: Any) -> str | None:
        """Act and return nothing, or read and return the observation."""
        if self._game is None or self.done:
            raise EpisodeOver("the episode is over; reset starts another")
        self.check_call(name, arguments)
        if name == READ:
            return self._observation(self._game)
        self._game.act(ACTIONS[name]["upstream"])
        return None

    def free_observation(self) -> str | None:
        """Return the last observation after the player's death: the primitive that reads it is refused."""
        return self._observation(self._started()) if self.done else None

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

    def snapshot(self) -> dict[str, Any] | None:
        """Return the 9 x 9 window, the player's position and direction, vitals and inventory.

        See `envs.crafter_text.snapshot` for its keys.
        """
        return None if self._game is None else crafter_text.snapshot(self._game)

    def textures(self) -> list[list[str]]:
        """Return the names of upstream's textures for the cells of the snapshot's `window`, row by row:
        `grass`, or `grass.cow` with a creature. Raises `EpisodeOver` before the first reset."""
        return crafter_text.textures(self._started())

    def _observation(self, game: Game) -> str:
        return crafter_text.describe(crafter_text.snapshot(game), self._view)

    def _started(self) -> Game:
        if self._game is None:
            raise EpisodeOver("there is no episode yet; reset starts one")
        return self._game
