"""Pictures of who calls whom."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from xml.etree import ElementTree

import pytest

from serving.model_configs import CHECKOUT
from speedrunner.library.library import Library
from speedrunner.pages.graph import WIDEST, call_graph
from tests.toy_env import Corridor

SVG = "{http://www.w3.org/2000/svg}"
EMPTY = Library(Corridor().primitives)


def function(name: str, *called: str) -> str:
    body = "\n".join(f"    {each}()" for each in called) or '    len("")'
    return f'def {name}() -> None:\n    """Do."""\n{body}\n'


def library(**calls: str) -> Library:
    """Functions by name, with those that they call."""
    return EMPTY.write("\n".join(function(name, *called.split()) for name, called in calls.items()), sleep=1)


def draw(library: Library, ran: Mapping[tuple[str, str], int] = {}, shown: Sequence[str] = ()) -> str:
    """All skills, or some."""
    return call_graph(library, ran, shown or list(library.by_name))


def boxes(drawn: str) -> dict[str, tuple[float, float]]:
    """The middle of each box's text, from the left and from above, without the legend."""
    found = re.findall(r'<text x="([\d.]+)" y="([\d.]+)" [^>]*>(\w+)</text>', drawn)
    return {name: (float(x), float(y)) for x, y, name in found[3:]}


def ends(drawn: str) -> set[str]:
    """The skills that arrows lead to."""
    return set(re.findall(r"marker-end[^>]*><title>calls of (\w+), 0 by", drawn))


def test_an_empty_library_has_none() -> None:
    assert draw(EMPTY) == ""


def test_callers_stand_above_whom_they_call_and_primitives_last() -> None:
    drawn = draw(library(go="_step look", _step="walk", home="go walk"))
    rows = {name: y for name, (_, y) in boxes(drawn).items()}
    assert rows["home"] < rows["go"] < rows["_step"] < rows["walk"] == rows["look"]
    assert ends(drawn) == {"_step", "go", "look", "walk"}
    assert "3 skills, 2 public and 1 private, and 2 primitives" in drawn


def test_each_kind_has_its_shape_and_skills_are_links() -> None:
    drawn = draw(library(go="_step", _step="walk"))
    assert '<a class="public" href="#skill-go"><title>go (public), calls _step</title>' in drawn
    assert '<a class="private" href="#skill-_step">' in drawn
    assert "#skill-walk" not in drawn
    shapes = {kind: re.findall(rf'class="{kind}".*?<rect[^>]* (rx=[^/]*)/>', drawn) for kind in
              ("public", "private", "primitive")}  # fmt: skip
    assert len({shape for found in shapes.values() for shape in found}) == 3


def test_circles_are_drawn_as_dashed_lines() -> None:
    drawn = draw(library(again="again", ping="pong walk", pong="ping"))
    assert sorted(re.findall(r'stroke-dasharray="4 3"><title>calls of (\w+)', drawn)) == [
        "again", "ping", "pong",
    ]  # fmt: skip
    assert boxes(drawn)["ping"][1] == boxes(drawn)["pong"][1]


def test_a_line_is_the_wider_the_more_often_its_call_ran() -> None:
    drawn = draw(
        library(go="_step look", _step="walk"), {("", "go"): 2, ("go", "_step"): 2, ("_step", "walk"): 90}
    )
    widths = dict(re.findall(r'stroke-width="([\d.]+)" stroke-opacity[^>]*><title>calls of (\w+)', drawn))
    width = {name: float(each) for each, name in widths.items()}
    assert width["look"] == 1.0 < width["_step"] < width["walk"] == 7.0
    assert "calls of walk, 90 by _step" in drawn
    assert "calls of look, 0 by go" in drawn
    assert "go (public), calls _step, look; called 2 times by the actor" in drawn


def test_a_part_of_the_skills_can_be_drawn() -> None:
    drawn = draw(library(go="_step look", _step="walk"), shown=["go"])
    assert set(boxes(drawn)) == {"go", "look"}
    assert "1 skills, 1 public and 0 private, and 1 primitives" in drawn


def test_lines_are_untangled() -> None:
    """Four pairs in opposite order: as written every line crosses every other one."""
    calls = {f"top{n}": f"_low{n}" for n in range(4)} | {f"_low{n}": "" for n in (3, 2, 1, 0)}
    at = {name: x for name, (x, _) in boxes(draw(library(**calls))).items()}
    order = sorted(range(4), key=lambda n: at[f"top{n}"])
    assert order == sorted(range(4), key=lambda n: at[f"_low{n}"])


def test_many_skills_stay_within_rows_and_beside_each_other() -> None:
    calls = {f"skill_{n}": "walk look" for n in range(30)} | {f"_part_{n}": "walk" for n in range(10)}
    drawn = draw(library(**calls))
    root = ElementTree.fromstring(drawn)
    assert root.get("role") == "group"  # it has links
    assert " style=" not in drawn
    width = float(root.get("width") or 0)
    rows: dict[float, list[tuple[float, str]]] = {}
    for name, (x, y) in boxes(drawn).items():
        rows.setdefault(y, []).append((x, name))
        assert 0 < x < width
    for row in rows.values():
        assert len(row) <= WIDEST
        for (one, name), (other, following) in zip(sorted(row), sorted(row)[1:], strict=False):
            assert other - one > 3.65 * (len(name) + len(following)) + 18


@pytest.mark.process
def test_the_same_library_is_drawn_alike_in_each_process() -> None:
    program = """
from tests.speedrunner.pages.test_graph import draw, library
calls = {f"skill_{n}": f"_part_{n % 3} walk" for n in range(9)} | {f"_part_{n}": "" for n in range(3)}
print(draw(library(**calls)))
"""
    drawn = {
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=CHECKOUT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(drawn) == 1
