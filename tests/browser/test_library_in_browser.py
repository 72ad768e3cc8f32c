"""The pages of libraries, skills and tasks in a browser: sorting, folded parts, narrow and dark pages."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urljoin

import pytest
from speedrunner.pages.library_page import OPEN_SKILLS

from tests.browser.conftest import NARROW, WIDE, Pages
from tests.speedrunner.results.small_runs import learnt, skill

pytestmark = pytest.mark.slow

PAGES = (
    *("library.html", "skills.html"),
    *("library/0002.html", "library/0003.html", "sleep/0002/1.html"),
)


PRINTED = 980
"""Pixels of the width of a sheet of A4 or Letter paper, turned, without its margins."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose library grows, and becomes too large to be shown unfolded."""
    run = learnt(tmp_path_factory.mktemp("viewed") / "run")
    run.train(2, [skill("home", 2)])
    many = {f"skill_{n}": "return walk()" for n in range(OPEN_SKILLS)}
    run.policy(3, {"home": "return walk()", **many}, {"home": 1})
    run.test(6, 3, [1.0, 0.5], [skill("skill_3", 2), skill("home", 9), skill("home", 3)])
    return run.path


@pytest.mark.parametrize("path", PAGES)
def test_every_page_is_quiet_and_fits_narrow_and_dark_windows(written: str, pages: Pages, path: str) -> None:
    for width, dark in ((WIDE, False), (NARROW, True)):
        page = pages.open(urljoin(written, f"runs/run/{path}"), width=width, dark=dark)
        assert page.locator("h1").is_visible()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (path, width)
        page.context.close()


def test_skills_are_sorted_by_a_click_and_unknown_values_come_last(written: str, pages: Pages) -> None:
    page = pages.open(urljoin(written, "runs/run/skills.html"))
    names = "[...document.querySelectorAll('.sortable tbody th a')].map((each) => each.textContent)"
    assert page.evaluate(names) == ["home", "skill_3", "_step"]
    by_code = page.get_by_role("columnheader", name="by other code")
    by_code.get_by_role("button").click()
    assert page.evaluate(names) == ["_step", "home", "skill_3"]
    assert by_code.get_attribute("aria-sort") == "descending"
    score = page.get_by_role("columnheader", name="score with it")
    for order in ("descending", "ascending"):
        score.get_by_role("button").click()
        assert score.get_attribute("aria-sort") == order
        assert page.evaluate(names)[-1] == "_step"
    assert by_code.get_attribute("aria-sort") is None
    page.get_by_role("columnheader", name="skill", exact=True).get_by_role("button").click()
    assert page.evaluate(names) == ["_step", "home", "skill_3"]


@pytest.mark.parametrize("path", ["index.html", "skills.html"])
def test_print_cuts_off_no_column(written: str, pages: Pages, path: str) -> None:
    page = pages.open(urljoin(written, f"runs/run/{path}"), width=PRINTED)
    page.emulate_media(media="print")
    cut = "[...document.querySelectorAll('.wide')].filter((each) => each.scrollWidth > each.clientWidth)"
    assert page.locator(".wide").count()
    assert page.evaluate(f"{cut}.map((each) => each.ariaLabel)") == []


def test_a_link_to_a_folded_skill_unfolds_it(written: str, pages: Pages) -> None:
    page = pages.open(urljoin(written, "runs/run/library/0003.html#skill-skill_7"))
    source = page.locator("#skill-skill_7 pre")
    assert source.is_visible()
    assert not page.locator("#skill-skill_8 pre").is_visible()
    page.goto(urljoin(written, "runs/run/library/0003.html#change-skill_9"))
    assert page.locator("#change-skill_9 pre").is_visible()


def test_a_cell_leads_to_the_difference(written: str, pages: Pages) -> None:
    page = pages.open(urljoin(written, "runs/run/library.html"))
    page.get_by_role("link", name="edited").first.click()
    page.wait_for_url("**/library/0002.html#change-home")
    assert "-    return _step()" in page.locator("#change-home").inner_text()
