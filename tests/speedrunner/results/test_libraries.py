"""Libraries in numbers, against ones worked out by hand and against a second, naive implementation."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speedrunner.library.definition import read_text
from speedrunner.results.libraries import (
    COMBAT,
    LibraryStatistics,
    depths,
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
def test_words_of_combat_count_in_code_and_its_texts(word: str) -> None:
    assert of(f"def f():\n    return {word}s_near()").combat == 1
    assert of(f"def f():\n    return 'the {word.title()}' in look()").combat == 1
    assert of(f"def f(): return f(include_{word}=True)").combat == 1


@pytest.mark.parametrize(
    "source",
    [
        'def fight_zombies(arrow: int):\n    """Attack the zombie."""\n    return move(1)',
        "def f():\n    # a zombie\n    return narrow_path(1)",
        'def f():\n    """Fight."""',
    ],
)
def test_head_docstring_comments_and_parts_of_words_do_not(source: str) -> None:
    assert of(source).combat == 0


GRAPHS = st.integers(1, 7).flatmap(
    lambda size: st.lists(st.tuples(st.integers(0, size - 1), st.integers(0, size - 1)), max_size=15).map(
        lambda edges: (size, edges)
    )
)


@settings(deadline=None)
@given(GRAPHS)
def test_figures_are_those_of_a_naive_implementation(graph: tuple[int, list[tuple[int, int]]]) -> None:
    size, edges = graph
    calls = {one: sorted({to for from_, to in edges if from_ == one}) for one in range(size)}
    source = "\n".join(
        f"def f{one}():\n    pass\n" + "".join(f"    f{to}()\n" for to in calls[one]) for one in range(size)
    )
    found = of(source)
    depth = naive_depths(naive_edges(source))
    assert found.max_depth == max(depth.values())
    assert found.mean_depth == pytest.approx(sum(depth.values()) / size)
    edges_ = {(a, b) for a, b in edges if a != b}
    assert found.density == pytest.approx(len(edges_) / (size * (size - 1)) if size > 1 else 0)
    assert depths(naive_edges(source)) == depth


def naive_edges(source: str) -> dict[str, set[str]]:
    """Whom each function calls, by its syntax tree."""
    functions = {each.name: each for each in ast.parse(source).body if isinstance(each, ast.FunctionDef)}
    return {
        name: {each.id for each in ast.walk(tree) if isinstance(each, ast.Name) and each.id in functions}
        for name, tree in functions.items()
    }


def naive_depths(calls: dict[str, set[str]]) -> dict[str, int]:
    """The longest of all ways down, circles being left as soon as they have been entered."""
    reach = {name: {name} for name in calls}
    for _ in calls:
        reach = {name: {name}.union(*(reach[to] for to in calls[name])) for name in calls}
    circle = {name: {other for other in reach[name] if name in reach[other]} for name in calls}

    def depth(name: str) -> int:
        below = {to for each in circle[name] for to in calls[each]} - circle[name]
        return max((1 + depth(to) for to in below), default=0)

    return {name: depth(name) for name in calls}
