"""Libraries in numbers worked out by hand."""

from __future__ import annotations

import pytest

from speedrunner.library.definition import read_text
from speedrunner.results.libraries import (
    COMBAT,
    LibraryStatistics,
    library_statistics,
)

TOWER = '''
import math

STEPS = 3


def solve(goal: str) -> str:
    """Reach a goal; zombies are somebody else's concern."""
    if goal == "flag" and math.pi > 3:
        return walk(STEPS)
    return _search(goal) or walk(1)


def _search(goal: str) -> str:
    for step in range(STEPS):
        if goal in look():
            return _turn(step)
    return _search(goal)


def _turn(steps: int) -> str:
    return "attack" if steps else turn()


def rest() -> str:
    return noop()
'''


def of(source: str) -> LibraryStatistics:
    return library_statistics(read_text(source))


def test_figures_are_those_worked_out_by_hand() -> None:
    # Depths: solve 2, _search 1 (itself does not count), _turn 0, rest 0. Edges: solve to _search to _turn.
    # Complexity: solve 1 + if + and + or, _search 1 + for + if, _turn 1 + if, rest 1.
    assert of(TOWER) == LibraryStatistics(
        functions=4,
        max_depth=2,
        mean_depth=3 / 4,
        density=2 / (4 * 3),
        cyclomatic=(4 + 3 + 2 + 1) / 4,
        combat=1 / 4,
    )


def test_an_empty_library_has_no_means_and_one_function_no_density() -> None:
    assert of("") == LibraryStatistics(0, 0, None, 0.0, None, None)
    assert of("def alone():\n    return alone()") == LibraryStatistics(1, 0, 0.0, 0.0, 1.0, 0.0)


@pytest.mark.parametrize(
    "body",
    [
        '"""Calls other()."""\n    return 1',
        "other = 3\n    return other",
        "return 'other'",
        "x: other = 3\n    return x",
    ],
)
def test_what_is_no_call_is_no_edge(body: str) -> None:
    assert of(f"def one():\n    {body}\n\ndef other():\n    pass\n").max_depth == 0


@pytest.mark.parametrize("word", COMBAT)
def test_words_of_combat_count_in_code_and_its_texts_alone(word: str) -> None:
    for body in (f"return {word}s_near()", f"return 'the {word.title()}'", f"return f(include_{word}=True)"):
        assert of(f"def f():\n    {body}").combat == 1
    for body in (f'"""The {word}."""\n    return move(1)', f"# a {word}\n    return narrow_path(1)"):
        assert of(f"def {word}({word}: int):\n    {body}").combat == 0


def test_functions_that_call_each_other_are_one_node_of_a_path() -> None:
    calls = {"a": "b", "b": "a", "c": "d", "d": "d", "e": "c"}
    body = "\n".join(f"def {name}():\n    {called}()" for name, called in calls.items())
    found = of(body.replace("    b()", "    b()\n    c()"))  # a and b, then c, then d; e, then c
    assert (found.max_depth, found.mean_depth) == (2, pytest.approx((2 + 2 + 1 + 0 + 2) / 5))
    assert found.density == pytest.approx(5 / (5 * 4))
