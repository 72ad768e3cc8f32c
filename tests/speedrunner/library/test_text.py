"""Libraries as text for people."""

from __future__ import annotations

from speedrunner.library.library import Library
from speedrunner.library.text import source_text
from tests.toy_env import Corridor

STEP = 'def _step(n: int) -> str:\n    """Walk."""\n    return walk(n * UNIT)'
GO = 'def go() -> str:\n    """Go."""\n    look()\n    return _step(1) + _step(2)'
BACK = 'def back() -> str:\n    """Go back."""\n    return _step(-1) if look() else back()'


EMPTY = Library(Corridor().primitives)
FIRST = EMPTY.write(f"UNIT = 2\n{STEP}", public=False, sleep=1).write(GO, public=True, sleep=1)
SECOND = FIRST.edit("go", "look()\n    ", "", sleep=2).write(BACK, public=True, sleep=2)


def test_a_library_s_source_says_who_may_call_and_who_wrote_each_skill() -> None:
    after = source_text(SECOND).split("\n\n\n")
    assert after[:2] == ["UNIT = 2", f"# private, from sleep 1\n{STEP}"]
    assert after[2].startswith("# public, from sleep 1, edited in sleep 2\ndef go()")
    assert source_text(EMPTY) == "(the library is empty)"


def test_notes_follow_the_skills() -> None:
    assert source_text(SECOND, "Walls hurt.").endswith("back()\n\n\n# notes for the actor\nWalls hurt.")
    assert source_text(EMPTY, "Walls hurt.") == "# notes for the actor\nWalls hurt."
