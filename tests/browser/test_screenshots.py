"""Screenshots of the demo's pages for the docs: `pytest --update` takes them again.

Without `--update`, each page must fit its window, and its pictures must exist. Pixels are not compared,
because fonts differ between machines.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from urllib.parse import urljoin

import pytest
from PIL import Image
from playwright.sync_api import Page, expect

from serving.model_configs import CHECKOUT
from speedrunner.store.records import EpisodeRow
from speedrunner.store.run_data import load
from tests.browser.conftest import WIDE, Pages, serve
from tests.bundled_demo import Demo
from tests.scripted_runs import in_process

pytestmark = pytest.mark.slow

PICTURES = CHECKOUT / "docs" / "images" / "pages"

HEIGHT = 900
"""Pixels of the height of the window."""

COLORS = 128
"""Colors of a picture. More make it larger, and look the same."""

RUN = "runs/speedrunner"

PAGES = {"run": (f"{RUN}/index.html", 600), "sleep": (f"{RUN}/sleep/0002/1.html", 600)}
"""Addresses, and how many pixels windows are higher than `HEIGHT`."""

Shoot = Callable[..., None]


@pytest.fixture
def shoot(request: pytest.FixtureRequest, pages: Pages) -> Shoot:
    """Check a page; with `--update`, also take its picture. The window can be higher by `more` pixels."""

    def shoot(
        name: str, address: str, prepare: Callable[[Page], None] = lambda page: None, more: int = 0
    ) -> None:
        page = pages.open(address, width=WIDE)
        page.set_viewport_size({"width": WIDE, "height": HEIGHT + more})
        prepare(page)
        assert page.locator("h1").count() == 1
        assert page.evaluate("document.documentElement.scrollWidth") == WIDE
        file = PICTURES / f"{name}-wide.webp"
        if request.config.getoption("--update"):
            file.parent.mkdir(exist_ok=True)
            taken = Image.open(BytesIO(page.screenshot())).convert("RGB")
            taken.quantize(COLORS).convert("RGB").save(file, lossless=True, method=6)
        assert file.is_file(), f"{file} is missing: call pytest --update"

    return shoot


@pytest.fixture(scope="module")
def viewer(bundled_demo: Demo) -> Iterator[str]:
    """The address of the viewer of the demo."""
    with serve(bundled_demo.run.parent) as address:
        yield address


@pytest.mark.parametrize("name", PAGES)
def test_a_page(viewer: str, shoot: Shoot, name: str) -> None:
    address, more = PAGES[name]
    shoot(name, urljoin(viewer, address), more=more)


@pytest.fixture(scope="module")
def failure(bundled_demo: Demo) -> EpisodeRow:
    """A test episode with skills that failed; if all succeeded, the first one."""
    rows = [row for row in load(bundled_demo.run).rows if row.phase == "test" and row.policy]
    return min(rows, key=lambda row: (row.success, -row.checkpoint, row.episode))


def test_the_playback_of_an_episode(viewer: str, shoot: Shoot, failure: EpisodeRow) -> None:
    def go_into_a_skill(page: Page) -> None:
        page.locator("#playback .world img").wait_for()
        for _ in range(2):
            page.get_by_role("button", name="Next step").click()
        expect(page.locator("#playback output")).to_have_text(re.compile("^2 / "))
        page.locator("#playback").evaluate("each => each.scrollIntoView()")

    shoot("episode", urljoin(viewer, f"{RUN}/{failure.episode}/1.html"), go_into_a_skill)


def test_the_report(viewer: str, bundled_demo: Demo, shoot: Shoot, tmp_path: Path) -> None:
    done = in_process("report", str(bundled_demo.run.parent), "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    shoot("report", (tmp_path / "report.html").as_uri())
