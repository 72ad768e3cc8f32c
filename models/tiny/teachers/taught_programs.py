"""What the inducer's teacher writes: skills for BabyAI, some helpers in a first and a better version, and
code that looks at what was played.

The texts stand in `texts/`, without double quotes and backslashes: so a line is the same in a prompt and in
the JSON of a call.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from pathlib import Path

from envs import make
from speedrunner.methods import Library, Policy


def _text(name: str) -> str:
    return (Path(__file__).parent / "texts" / f"{name}.py.txt").read_text(encoding="utf-8").strip()


FIRST, WHOLE, ROUTE, SEARCH, LOOK, ORDER = map(_text, ("first", "whole", "route", "search", "look", "order"))

CHECK = "    if len(parts) != 2:"
"""Where `_parse` refuses a mission; what stands before it is read."""

BOTH = f"""    if ' after you ' in mission:
        parts = mission.split(' after you ')[::-1]
{CHECK}"""
"""The same, once the other wording is known."""

LINES = sorted(
    {line for text in (FIRST, WHOLE, BOTH, ROUTE, SEARCH, LOOK, ORDER) for line in text.split("\n") if line}
)
"""All that is ever written as code."""

PARTS = ("whole", "parse", "route", "search")
"""What the first routines lack, in the order in which it is written; `parse` needs `whole`."""

SIGNS = {
    "whole": "def solve_mission(",
    "parse": " after you ",
    "route": "from collections import deque",
    "search": "from other places too",
}
"""By what a library's source shows that it has each of them."""


def has(source: str) -> set[str]:
    """The parts that a library's source has."""
    return {part for part, sign in SIGNS.items() if sign in source}


def policy(parts: Collection[str]) -> Policy:
    """The library of the first routines and these parts, as if another run's first sleep had left it."""
    library = Library(make("babyai").primitives).write(FIRST, sleep=1)
    for part, source in {"whole": WHOLE, "route": ROUTE, "search": SEARCH}.items():
        if part in parts:
            library = library.write(source, sleep=1)
    if "parse" in parts:
        library = library.edit("_parse", CHECK, BOTH, sleep=1)
    return library.policy(Policy(version=0))


def drawn(rng: random.Random) -> set[str]:
    """Parts that a run may begin with: none, some, all."""
    parts = {part for part in PARTS if rng.random() < 0.5}
    return parts if "whole" in parts else parts - {"parse"}
