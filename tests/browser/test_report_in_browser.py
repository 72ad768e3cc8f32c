"""The report in a browser: drawn figures, links that lead somewhere, keyboard, labels, two widths, dark."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests.browser.conftest import COLORS, NARROW, WIDE, Pages
from tests.scripted_runs import in_process
from tests.synthetic_sweep import BABYAI, FAMILY_3, write_sweep

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where the report of an invented sweep lies."""
    runs = tmp_path_factory.mktemp("sweep") / "runs"
    write_sweep(runs, seeds=2, envs=(BABYAI, FAMILY_3))
    done = in_process("report", str(runs))
    assert done.returncode == 0, done.stderr
    return Path(runs, "report", "report.html").as_uri()


@pytest.mark.parametrize(("width", "dark"), [(WIDE, False), (NARROW, True)])
def test_figures_are_drawn_and_the_page_is_no_wider_than_the_window(
    report: str, pages: Pages, width: int, dark: bool
) -> None:
    page = pages.open(report, width=width, dark=dark)
    widths = page.evaluate("[...document.querySelectorAll('figure img')].map(image => image.naturalWidth)")
    assert len(widths) == 2  # curves and points
    assert min(widths) > 0  # each is a valid SVG
    assert page.evaluate("document.documentElement.scrollWidth") == width
    text, back = map(lightness, page.evaluate(COLORS))
    assert abs(text - back) > 0.7
    assert (back < 0.5) == dark


def lightness(color: str) -> float:
    """Of rgb(red, green, blue), between 0 and 1."""
    return sum(map(int, color.removeprefix("rgb(").rstrip(")").split(","))) / 765


def test_keys_lead_past_the_contents_show_where_they_are_and_unfold_tables(report: str, pages: Pages) -> None:
    page = pages.open(report)
    page.keyboard.press("Tab")
    assert focused(page, "innerText") == "To the content"
    assert page.locator(".skip").bounding_box()["x"] >= 0
    page.keyboard.press("Enter")
    assert focused(page, "id") == "content"
    page.keyboard.press("Tab")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    table = page.locator("#tables table").first
    assert not table.is_visible()
    page.locator("#tables summary").first.focus()
    page.keyboard.press("Enter")
    assert table.is_visible()


def focused(page: Page, what: str) -> str:
    """A property of the element that has the focus."""
    return str(page.evaluate(f"document.activeElement.{what}"))
