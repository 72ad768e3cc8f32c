"""The measures of a test episode: one list, from which tables, comparisons and figures choose."""

from __future__ import annotations

import msgspec

from speedrunner.store.records import Termination


class Measure(msgspec.Struct, frozen=True):
    """A value of a test episode.

    Attributes:
        name: its column in frames of episodes, in the means of checkpoints, and in tables.
        title: its name for people.
        digits: decimals for people.
        is_spent: whether training spends it, too: its table sums it over rollouts and sleeps.
        is_compared: whether `speedrunner compare` shows it.
    """

    name: str
    title: str
    digits: int
    is_spent: bool = False
    is_compared: bool = True

    @property
    def short_title(self) -> str:
        """Return the title for narrow tables, in which tokens have the name of their class."""
        return self.name if self.title.endswith("tokens") else self.title


MEASURES = (
    Measure("score", "score", 3),
    Measure("llm_calls", "LLM calls", 1),
    Measure("actions", "actions", 1, is_compared=False),
    Measure("repeated_calls", "repeated calls", 1, is_compared=False),
    Measure("uncached", "uncached prompt tokens", 0, is_spent=True),
    Measure("cached", "cached prompt tokens", 0, is_spent=True),
    Measure("output", "output tokens", 0, is_spent=True),
    Measure("usd", "test USD", 6, is_spent=True),
)

MEANS = tuple(each.name for each in MEASURES)
SPENT = tuple(each.name for each in MEASURES if each.is_spent)
"""Tokens by class, and USD: what an episode or a sleep takes."""

AVERAGED = (*MEANS[:-1], "cost_usd", "cost_usd_cold", "thought_cut")
"""Columns of a checkpoint in the tables, per test episode; `thought_cut` is a share of the answers."""

COUNTS = ("episodes", "unscored", "silent")
TRAINING = tuple(f"training_{name}" for name in SPENT)

TESTED = ("score", "output", "cost_usd")
"""The metrics of tests between conditions."""

LIMITS = tuple(each.value for each in Termination if each.is_limit)
"""Terminations by a limit. A checkpoint has the share of its test episodes that each of them ended."""

CUT = (Termination.WALL_CLOCK.value, Termination.CONTEXT_OVERFLOW.value)
"""The limits of the machinery, not of the environment. Tables flag scores that they affect."""
