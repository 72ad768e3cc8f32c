"""A scripted coding agent for BabyAI's sleeps: it analyses the episodes and writes the skills they require.

It decides from the library in its prompt and from its code's reports. Its thoughts repeat the facts that
led to a decision. Random draws choose the wordings and whether an edit first contains a mistake.

Some helpers that it writes have a first and a better version. The sources are in `texts/`. They have no
double quotes or backslashes, so a line is the same in a prompt and in the JSON of a call.
"""

from __future__ import annotations

import random
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

from envs import make
from models.tiny.teachers.bot import WORDINGS, Work
from speedrunner.methods import Library, Policy, ToolCall


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


def find_parts(source: str) -> set[str]:
    """Return the parts that a library's source has."""
    return {part for part, sign in SIGNS.items() if sign in source}


def make_policy(parts: Collection[str]) -> Policy:
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


AT_ONCE = 2
"""Maximum number of parts that one sleep adds."""

MISTAKES = 0.12
"""Share of edits that first contain a mistake."""

WRONG = {
    "first": (r"(?s)\A.*?\n\n", ""),
    "whole": (r"solve_mission\(mission: str\)", "solve_mission(mission)"),
    "parse": ("!=", "=="),
    "route": (r"(?s)\A.*?\n\n", ""),
    "search": (r"    '''.*\n", ""),
}
"""The mistake in a wrong edit of a part: a pattern and its replacement. The edit is then refused."""

WORDS: dict[str, Any] = WORDINGS["inducer"]
"""What thoughts say: `names` of the library's parts; `symptoms`, the line of the report with the number that
shows whether a part is needed; `remedies`, the mistake in a wrong edit; first and last sentences."""

NAMES, SYMPTOMS = WORDS["names"], WORDS["symptoms"]


def session(prompt: str, tools: Collection[str], rng: random.Random) -> Work:
    """Work through one sleep.

    Args:
        prompt: the user message of the sleep.
        tools: names of the available tools; without `execute_code`, decisions use the library alone.
        rng: draws wordings and mistakes.
    """
    source = prompt.partition("```python\n")[2].partition("\n```")[0]
    lacking = [part for part in PARTS if part not in find_parts(source)] if source else ["first"]
    names = ", ".join(NAMES[part] for part in lacking) or "nothing"
    thought = f"The library lacks {names}." if source else "The library is empty."
    both = False
    if "execute_code" in tools:
        told = yield f"{thought}\n{rng.choice(WORDS['openings'])}", _call("execute_code", code=LOOK)
        thought, due = decide_parts(numbers(told), lacking)
        if {"whole", "parse"} & set(due):
            look = "Before I write how missions are read, I look at what ended the solved ones."
            told = yield f"{thought}\n{look}", _call("execute_code", code=ORDER)
            going = numbers(told)["after you, ended by going"]
            both = going > 0
            shown = "first comes what stands after these words" if both else "the order is not known yet"
            thought = f"after you, ended by going: {going}, {shown}."
            due = [part for part in due if part != "parse" or both]
    else:
        due = lacking[:AT_ONCE]
    done: list[str] = []
    for place, part in enumerate(due):
        edits = [_edit(part, both=both)]
        if rng.random() < MISTAKES:
            edits.insert(0, _edit(part, both=both, wrong=True))
        plan = f"To do: {', '.join(NAMES[missing] for missing in due[place:])}. Now {NAMES[part]}."
        for edit in edits:
            told = yield f"{thought}\n{plan}", edit
            thought, plan = f"It was refused: {WORDS['remedies'][part]}.", "I write it again."
        thought = f"Stored: {NAMES[part]}."
        done.append(NAMES[part])
    summary = f"Added {' and '.join(done)}." if done else "Nothing had to be changed."
    yield f"{thought}\nTo do: nothing. {rng.choice(WORDS['endings'])}", _call("finish", summary=summary)


def numbers(report: str) -> dict[str, int]:
    """Return the first number of each line of a report, by the words before it."""
    return {words: int(number) for words, number in re.findall(r"(?m)^([^:\n]+): (\d+)", report)}


def decide_parts(facts: dict[str, int], lacking: Collection[str]) -> tuple[str, list[str]]:
    """Return the thought and the list of parts that a report requires and a library lacks."""
    if "first" in lacking:
        counts = f"episodes: {facts['episodes']}, solved: {facts['solved']}."
        return f"{counts} There is no routine yet.", ["first"]
    lines: list[str] = []
    due: list[str] = []
    for part in PARTS:
        number, lacks = facts[SYMPTOMS[part]], part in lacking
        state, verdict = "missing" if lacks else "there", "not due"
        if number > 0 and lacks and (part != "parse" or "whole" not in lacking):
            verdict = "due" if len(due) < AT_ONCE else "later"
            due += [part] * (verdict == "due")
        lines.append(f"{SYMPTOMS[part]}: {number}, {NAMES[part]} {state}: {verdict}.")
    return "\n".join(lines), due


def _edit(part: str, *, both: bool, wrong: bool = False) -> ToolCall:
    """Return the call that adds a part to the library.

    Args:
        both: whether the mission parser supports both wordings from the start.
        wrong: return a call with a mistake instead, which is refused.
    """
    source = CHECK if part == "parse" else SOURCES[part]
    if part == "whole" and both:
        source = source.replace(CHECK, BOTH)
    if wrong:
        source = re.sub(*WRONG[part], source)
    if part == "parse":
        return _call("edit_skill", name="_parse", old=source, new=BOTH)
    return _call("write_skill", source=source, public=part in ("first", "whole"))


def _call(name: str, /, **arguments: object) -> ToolCall:
    return ToolCall(name, arguments)
