"""The report in a browser: drawn figures, links that lead somewhere, keyboard, labels, two widths, dark."""

from __future__ import annotations

import re
from itertools import combinations, pairwise
from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests.browser.conftest import COLORS, NARROW, WIDE, Pages
from tests.scripted_runs import in_process
from tests.synthetic_sweep import write_sweep

pytestmark = pytest.mark.slow

PLAN = ("run.rollouts=4", "run.sleep_every=2", "run.eval_every=2", "run.test_episodes=3")
ENVS = (("env=babyai",), ("env=scienceworld", "env.family=3"))
SETTINGS = [(env, f"method={method}") for env in ENVS for method in ("react", "speedrunner")]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where the report of an invented sweep lies."""
    runs = tmp_path_factory.mktemp("sweep") / "runs"
    list(write_sweep(runs, PLAN, settings=SETTINGS, seeds=2, model="gpt-5.4-mini", shrink=0.1))
    done = in_process("report", str(runs))
    assert done.returncode == 0, done.stderr
    return Path(runs, "report", "report.html").as_uri()


AREAS = """[...document.querySelectorAll(".panel svg")].map(drawing =>
  [...drawing.querySelectorAll("[data-value]")].map(mark => mark.getBoundingClientRect())
    .reduce((sum, box) => sum + box.width * box.height, 0))"""
"""Square pixels of the marks of each panel."""


@pytest.mark.parametrize(("width", "dark"), [(WIDE, False), (NARROW, True)])
def test_figures_are_drawn_and_the_page_is_no_wider_than_the_window(
    report: str, pages: Pages, width: int, dark: bool
) -> None:
    page = pages.open(report, width=width, dark=dark)
    areas = page.evaluate(AREAS)
    assert len(areas) == 16  # in each of two environments: three curves, two kinds of points, tokens, spend
    assert min(areas) > 30
    assert page.evaluate("document.documentElement.scrollWidth") == width
    text, back = map(lightness, page.evaluate(COLORS))
    assert abs(text - back) > 0.7
    assert (back < 0.5) == dark


def lightness(color: str) -> float:
    """Of rgb(red, green, blue), between 0 and 1."""
    return sum(map(int, color.removeprefix("rgb(").rstrip(")").split(","))) / 765


def test_figures_follow_the_width_of_the_window(report: str, pages: Pages) -> None:
    page = pages.open(report, width=1600)
    first, second = page.locator(".panel").nth(0), page.locator(".panel").nth(1)
    assert first.bounding_box()["y"] == second.bounding_box()["y"]
    page.set_viewport_size({"width": NARROW, "height": 800})
    assert first.bounding_box()["y"] < second.bounding_box()["y"]
    for place in page.locator(".panel svg").all():
        box = place.bounding_box()
        assert 0 < box["x"] < box["x"] + box["width"] < NARROW


def test_panels_of_a_figure_have_the_same_size(report: str, pages: Pages) -> None:
    page = pages.open(report)
    for figure in page.locator("figure").all():
        sizes = {(box["width"], box["height"]) for each in figure.locator(".panel svg").all()
                 if (box := each.bounding_box())}  # fmt: skip
        assert len(sizes) == 1


def test_texts_of_a_drawing_do_not_overlap(report: str, pages: Pages) -> None:
    page = pages.open(report)
    for drawing in page.locator(".panel svg").all():
        boxes = drawing.evaluate("""drawing => [...drawing.querySelectorAll("text")].map(text => {
          const box = text.getBoundingClientRect();
          return [box.left, box.right, box.top + 2, box.bottom - 2];
        })""")
        for one, other in combinations(boxes, 2):
            beside = one[1] <= other[0] or other[1] <= one[0]
            assert beside or one[3] <= other[2] or other[3] <= one[2]


def test_a_mark_near_the_pointer_shows_its_value(report: str, pages: Pages) -> None:
    page = pages.open(report)
    tip = page.locator(".tip")
    assert not tip.is_visible()
    page.locator(".panel svg").first.scroll_into_view_if_needed()
    box = page.locator(".panel [data-value]").nth(1).bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2 + 5, box["y"] + box["height"] / 2 + 5)
    assert re.fullmatch(r"\w+: [\d.]+ ± [\d.]+\nafter \d+ training rollouts", tip.inner_text())
    page.mouse.move(2, 2)
    assert not tip.is_visible()


def test_links_lead_somewhere(report: str, pages: Pages) -> None:
    page = pages.open(report)
    for link in page.locator("nav a").all():
        link.click()
        target = page.locator(page.evaluate("location.hash"))
        assert target.bounding_box()["y"] < 800


def test_keys_lead_past_the_contents_show_where_they_are_and_unfold_numbers(
    report: str, pages: Pages
) -> None:
    page = pages.open(report)
    page.keyboard.press("Tab")
    assert focused(page, "innerText") == "To the content"
    assert page.locator(".skip").bounding_box()["x"] >= 0
    page.keyboard.press("Enter")
    assert focused(page, "id") == "content"
    page.keyboard.press("Tab")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    table = page.locator("figure table").first
    assert not table.is_visible()
    page.locator("figure summary").first.focus()
    page.keyboard.press("Enter")
    assert table.is_visible()


def test_what_is_seen_has_a_name_for_those_who_do_not_see_it(report: str, pages: Pages) -> None:
    page = pages.open(report)
    assert page.locator("html").get_attribute("lang") == "en"
    assert page.get_by_role("navigation", name="Contents").count() == 1
    assert page.get_by_role("img", name="Performance and cost over training").count() == 1
    unnamed = "[role=img]:not([aria-label]), [role=region]:not([aria-label]), th:not([scope])"
    assert page.locator(unnamed).count() == 0
    levels = page.evaluate("[...document.querySelectorAll('h1, h2, h3')].map(each => +each.tagName[1])")
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def focused(page: Page, what: str) -> str:
    """A property of the element that has the focus."""
    return str(page.evaluate(f"document.activeElement.{what}"))
