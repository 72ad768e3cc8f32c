"""BabyAI-Text as BALROG plays it: missions in a grid world, described in words (paper, Appendix C)."""

# mypy: disable-error-code="no-untyped-call"
from __future__ import annotations

import inspect
import os
from typing import TYPE_CHECKING, Annotated, Any

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
    read_description,
)

if TYPE_CHECKING:
    from envs.babyai_level import MixedLevel

TASKS = ("pick_up_seq_go_to",)
Distractors = Annotated[int, msgspec.Meta(ge=0, le=12)]
"""With more distractors, the room is so full that in hardly any drawn world all objects are within reach."""

SPLIT_SEED = 42
WORLD_SEEDS = range(100_000)

ACTIONS = {
    "turn_left": "Turn left by 90 degrees, staying in the same cell.",
    "turn_right": "Turn right by 90 degrees, staying in the same cell.",
    "go_forward": "Move into the cell in front of you, if nothing blocks it.",
    "pick_up": "Pick up the key, ball or box in the cell in front of you, if you carry nothing.",
    "drop": "Put what you carry into the cell in front of you, if that cell is empty.",
    "toggle": "Open or close what is in front of you: a door, or a box.",
}
"""The primitives in the order of MiniGrid's action numbers."""


class BabyAI(TextEnv):
    """BALROG's `BabyAI-MixedTrainLocal-v0/pick_up_seq_go_to`. A seed gives the same world, texts and end.

    The simulator ends an episode itself, on success or when its 128 steps are used up.

    Args:
        num_dists: objects in the room beyond the two that the mission needs (BALROG: 0).
        description: how much the agents' prompts say about the rules.
    """

    name = "babyai"
    limits = Limits(llm_calls=30, actions=128)  # the simulator counts them, too
    ends = f"the mission was fulfilled, or its {limits.actions} steps were used up."
    skills_read = (
        "No primitive looks without acting. A skill knows the mission and its first view only from its "
        "arguments, and each later view from what a primitive returned."
    )
    memory_mb = 8  # 6 of them in use
    primitives = tuple(
        Primitive(action, inspect.Signature(return_annotation=str), doc) for action, doc in ACTIONS.items()
    )

    def __init__(self, *, num_dists: Distractors = 0, description: Description = "paper") -> None:
        self.description = read_description(__file__, description)
        self._num_dists = num_dists
        self._level: MixedLevel | None = None
        self._success = False

    @classmethod
    def splits(cls) -> Split:
        """Return the paper's 200 training and 30 test worlds, drawn with seed 42 for every run."""
        return Split.drawn(cls.name, TASKS[0], WORLD_SEEDS, SPLIT_SEED)

    @classmethod
    def preload(cls) -> None:
        """Load MiniGrid in advance."""
        cls().reset(Task(cls.name, TASKS[0], 0))

    def reset(self, task: Task) -> Opening:
        """Start a task; its index is the world's seed. Raises `UnknownTask`."""
        self.check_task(task, TASKS)
        os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")  # for pygame, which MiniGrid imports
        from envs.babyai_level import MixedLevel  # here, so that splits and options need no MiniGrid

        level = MixedLevel(self._num_dists)
        view, _ = level.reset(seed=task.index)
        self._level, self._success = level, False
        return Opening(instruction=level.mission, observation=view["text"])

    def call(self, name: str, **arguments: Any) -> str:
        """Act, and return the new observation."""
        if self._level is None or self.done:
            raise EpisodeOver("the episode is over; reset starts another")
        self.check_call(name, arguments)
        view, reward, *_ = self._level.step(list(ACTIONS).index(name))
        self._success = float(reward) > 0
        return str(view["text"])

    @property
    def done(self) -> bool:
        """Whether the mission is complete or the simulator's steps are used up."""
        return self._success or (self._level is not None and self._level.step_count >= self._level.max_steps)

    def outcome(self) -> Outcome:
        """Score 1 for the simulator's positive reward, else 0."""
        if self._level is None:
            raise EpisodeOver("there is no episode yet; reset starts one")
        detail = {
            "steps": self._level.step_count,
            "max_steps": self._level.max_steps,
            "truncated": self.done and not self._success,
        }
        return Outcome(score=float(self._success), success=self._success, detail=detail)

    def image(self) -> Any:
        """Return the grid as minigrid draws it: an RGB array. Raises `EpisodeOver` before the first reset."""
        if self._level is None:
            raise EpisodeOver("there is no episode yet; reset starts one")
        return self._level.get_frame(highlight=False, tile_size=16)
