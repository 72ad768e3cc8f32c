"""Libraries that only grow: each function of a text is new and valid, or refused by itself."""

from __future__ import annotations

import pytest

from speedrunner.library.library import Library
from speedrunner.methods.append_only import TAKEN, append_skills
from tests.toy_env import Corridor

EVEN = 'def even(n: int) -> bool:\n    """Even?"""\n    return n == 0 or odd(n - 1)'
ODD = 'def odd(n: int) -> bool:\n    """Odd?"""\n    return n > 0 and even(n - 1)'
STEP = 'def step() -> str:\n    """Walk."""\n    return walk(1)'
BAD = "def bad(x):\n    return fly(x)"
ON_BAD = 'def on_bad() -> str:\n    """Fly."""\n    return bad(1)'


async def grown(*texts: str) -> tuple[Library, list[tuple[str, bool]]]:
    library = Library(Corridor().primitives)
    told: list[tuple[str, bool]] = []
    for number, text in enumerate(texts, start=1):
        library, edits = await append_skills(library, text, number)
        told += [(edit.name, edit.error is None) for edit in edits]
    return library, told


async def test_functions_that_need_each_other_go_in_together_whatever_else_is_bad() -> None:
    library, told = await grown(f"{EVEN}\n\n{BAD}\n\n{ODD}\n\n{STEP}\n\n{ON_BAD}")
    assert {skill.name for skill in library.skills} == {"even", "odd", "step"}
    assert sorted(told) == [
        ("bad", False), ("even, odd", True), ("on_bad", False), ("step", True),
    ]  # fmt: skip


async def test_what_is_there_is_not_changed_and_new_functions_may_call_it() -> None:
    other = STEP.replace("walk(1)", "walk(2)")
    twice = 'def twice() -> str:\n    """Step twice."""\n    step()\n    return step()'
    library, told = await grown(STEP, other, twice, f"{STEP}\n\n{twice.replace('twice', 'again')}")
    assert library.named["step"].source == STEP
    assert told == [("step", True), ("step", False), ("twice", True), ("step", False), ("again", True)]
    assert library.calls("twice") == ("step",)
    _, (edit,) = await append_skills(library, other, 3)
    assert edit.error == TAKEN


@pytest.mark.parametrize(
    ("text", "names"),
    [("def f(", ["f"]), ("f = 3", ["(none)"]), ("# nothing", ["(none)"]), ("?!", ["(none)"])],
)
async def test_what_holds_no_function_is_told(text: str, names: list[str]) -> None:
    library, edits = await append_skills(Library(Corridor().primitives), text, 1)
    assert [edit.name for edit in edits] == names
    assert all(edit.error for edit in edits)
    assert library.skills == ()


async def test_a_function_that_needs_another_one_than_the_library_has_is_refused() -> None:
    mine = STEP.replace("step()", "step(far: int)").replace("walk(1)", "walk(far)")
    jump = 'def jump() -> str:\n    """Step far."""\n    return step(5)'
    library, told = await grown(STEP, f"{mine}\n\n{jump}")
    assert told == [("step", True), ("step", False), ("jump", False)]
    assert [skill.name for skill in library.skills] == ["step"]


async def test_what_stands_beside_functions_concerns_those_alone_that_use_it() -> None:
    walker = "class Walker:\n    def go(self) -> str:\n        return last_step()"
    use = 'def use() -> str:\n    """Go."""\n    return Walker().go()'
    last = 'def last_step() -> str:\n    """Walk."""\n    return walk(FAR)'
    library, told = await grown(
        f"FAR = 2\n\n{use}\n\n{walker}\n\n{last}\n\n{EVEN}\n\n{ODD}\n\nprint(even(2))"
    )
    assert sorted(told) == [("even, odd", True), ("last_step", True), ("use", True)]
    library, edits = await append_skills(
        library, f"FAR = 3\n\n{STEP}\n\n{last.replace('last_step', 'far_step')}", 2
    )
    assert [(edit.name, edit.error is None) for edit in edits] == [("step", True), ("far_step", False)]
