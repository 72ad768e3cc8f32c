"""Programs that the inducer's teacher writes: BabyAI skills and code that analyses episodes.

Some helpers have a first and a better version. The sources are in `texts/`. They have no double quotes or
backslashes, so a line is the same in a prompt and in the JSON of a call.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from pathlib import Path

from envs import make
from speedrunner.methods import Library, Policy


def _text(name: str) -> str:
    return (Path(__file__).parent / "texts" / f"{name}.py.txt").read_text(encoding="utf-8").strip()


LOOK, ORDER = _text("look"), _text("order")

SOURCES = {part: _text(part) for part in ("first", "whole", "route", "search")}
"""Skills by part; `first` is what a library begins with."""

CHECK = "    if len(parts) != 2:"
"""The line of `_parse` that refuses a mission. Mission wordings are parsed before it."""

BOTH = f"""    if ' after you ' in mission:
        parts = mission.split(' after you ')[::-1]
{CHECK}"""
"""`CHECK` with support for the other wording before it."""

LINES = sorted({line for text in (*SOURCES.values(), BOTH, LOOK, ORDER) for line in text.split("\n") if line})
"""All lines of these programs."""

PARTS = ("whole", "parse", "route", "search")
"""Parts that the first routines lack, in the order in which they are written. `parse` needs `whole`."""

SIGNS = {
    "whole": "def solve_mission(",
    "parse": " after you ",
    "route": "from collections import deque",
    "search": "from other places too",
}
"""Text that shows that a library's source has a part."""


def has(source: str) -> set[str]:
    """Return the parts that a library's source has."""
    return {part for part, sign in SIGNS.items() if sign in source}


def policy(parts: Collection[str]) -> Policy:
    """Return a library with the first routines and `parts`, as if from another run's first sleep."""
    library = Library(make("babyai").primitives)
    for part, source in SOURCES.items():
        if part == "first" or part in parts:
            library = library.write(source, sleep=1)
    if "parse" in parts:
        library = library.edit("_parse", CHECK, BOTH, sleep=1)
    return library.policy(Policy(version=0))


def draw_parts(rng: random.Random) -> set[str]:
    """Draw the parts that a run starts with: none, some or all."""
    parts = {part for part in PARTS if rng.random() < 0.5}
    return parts if "whole" in parts else parts - {"parse"}
