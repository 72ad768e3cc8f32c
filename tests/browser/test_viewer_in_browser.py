"""The viewer in a browser: quiet pages that fit narrow and dark windows, keyboard, sorting, links."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urljoin

import pytest

from tests.browser.conftest import COLORS, NARROW, WIDE, Pages
from tests.speedrunner.pages.runs import hostile_run, long_run
from tests.speedrunner.results.small_runs import learnt, skill

pytestmark = pytest.mark.slow

TURNS = 120


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a long episode, one with hostile texts, and one whose library grows."""
    folder = tmp_path_factory.mktemp("viewed")
    long_run(folder / "long", TURNS)
    hostile_run(folder / "hostile")
    run = learnt(folder / "learnt")
    run.train(2, [skill("home", 2)])
    run.policy(3, {"home": "return walk()", "far": "return walk()"}, {"home": 1})
    run.test(6, 3, [1.0, 0.5], [skill("far", 2), skill("home", 9), skill("home", 3)])
    return folder


PAGES = (
    *("index.html", "runs/long/index.html", "runs/long/episodes.html", "runs/long/train/0000/2.html"),
    *("runs/hostile/train/0000/1.html", "runs/hostile/library/0001.html", "runs/hostile/sleep/0001/1.html"),
    *("runs/learnt/library/0002.html", "runs/learnt/skills.html", "runs/learnt/sleep/0002/1.html"),
)


@pytest.mark.parametrize(
    ("kind", "path"),
    [*(("served", path) for path in PAGES), *(("written", path) for path in PAGES[:4])],
)
def test_every_page_is_quiet_and_readable(
    request: pytest.FixtureRequest, pages: Pages, kind: str, path: str
) -> None:
    address = urljoin(request.getfixturevalue(kind), path)
    for width, dark in ((WIDE, False), (NARROW, True)):
        page = pages.open(address, width=width, dark=dark)
        assert page.locator("h1").is_visible()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (path, width)
        colors = page.evaluate(COLORS)
        assert colors == (
            ["rgb(230, 232, 235)", "rgb(20, 23, 27)"] if dark else ["rgb(26, 29, 33)", "rgb(255, 255, 255)"]
        )
        page.context.close()


def test_a_link_to_a_turn_leads_there(served: str, pages: Pages) -> None:
    page = pages.open(urljoin(served, f"runs/long/train/0000/2.html#turn-{TURNS}"))
    box = page.locator(f"#turn-{TURNS}").bounding_box()
    assert box is not None
    assert 0 <= box["y"] < 800


def test_the_keyboard_reaches_content_and_turns(served: str, pages: Pages) -> None:
    page = pages.open(urljoin(served, "runs/long/train/0000/1.html"))
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "To the content"
    assert page.locator(".skip").is_visible()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "content"
    for turn in ("turn-1", "turn-2", "turn-3"):
        page.keyboard.press("j")
        assert page.evaluate("document.activeElement.id") == turn
    page.keyboard.press("k")
    assert page.evaluate("document.activeElement.id") == "turn-2"


def test_skills_are_sorted_by_a_click_and_unknown_values_come_last(written: str, pages: Pages) -> None:
    page = pages.open(urljoin(written, "runs/learnt/skills.html"))
    names = "[...document.querySelectorAll('.sortable tbody a')].map((each) => each.textContent)"
    assert page.evaluate(names) == ["home", "far", "_step"]
    by_code = page.get_by_role("columnheader", name="by other code")
    by_code.get_by_role("button").click()
    assert page.evaluate(names) == ["_step", "home", "far"]
    assert by_code.get_attribute("aria-sort") == "descending"
    score = page.get_by_role("columnheader", name="score with it")
    for order in ("descending", "ascending"):
        score.get_by_role("button").click()
        assert score.get_attribute("aria-sort") == order
        assert page.evaluate(names)[-1] == "_step"


def test_episodes_are_filtered_and_sorted(written: str, pages: Pages) -> None:
    page = pages.open(urljoin(written, "runs/learnt/episodes.html"))
    page.get_by_label("Result").select_option("failure")
    page.get_by_label("Phase").select_option("test")
    shown = page.locator("tbody tr:not([hidden])")
    assert page.locator(".filters output").inner_text() == f"{shown.count()} shown"
    assert 0 < shown.count() < page.locator("tbody tr").count()
    cells = shown.locator("td:nth-child(3)").all_inner_texts()
    assert {*cells} == {"failure"}
    page.get_by_label("Result").select_option("")
    page.get_by_role("columnheader", name="score").get_by_role("button").click()
    scores = [*map(float, shown.locator("td:nth-child(2)").all_inner_texts())]
    assert scores == sorted(scores, reverse=True)
