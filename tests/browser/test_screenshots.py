"""Screenshots of the demo's pages for the docs: `pytest --update` takes them again.

Without `--update`, each page must fit its window, and its pictures must exist. Pixels are not compared,
because fonts differ between machines.
"""

from __future__ import annotations

import re
import subprocess
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
from tests.browser.conftest import NARROW, WIDE, Pages, serve
from tests.bundled_demo import Demo
from tests.processes import HANGS_S
from tests.scripted_runs import command, in_process

pytestmark = pytest.mark.slow

PICTURES = CHECKOUT / "docs" / "images" / "pages"

LOOKS = {"wide": (WIDE, 900, False), "narrow": (NARROW, 844, False), "dark": (WIDE, 900, True)}
"""Width and height of the window in pixels, and whether it is dark."""

COLORS = 128
"""Colors of a picture. More make it larger, and look the same."""

RUN = "runs/speedrunner"

PAGES = {
    "runs": ("index.html", -350),
    "run": (f"{RUN}/index.html", 600),
    "library": (f"{RUN}/library.html", 150),
    "sleep": (f"{RUN}/sleep/0002/1.html", 600),
    "skills": (f"{RUN}/skills.html", 0),
    "compare": ("compare.html", 0),
    "comparison": ("compare/react/speedrunner.html", 0),
}
"""Addresses, and how many pixels wide windows are higher than in `LOOKS`."""

Shoot = Callable[..., None]


@pytest.fixture
def shoot(request: pytest.FixtureRequest, pages: Pages) -> Shoot:
    """Check a page in all windows; with `--update`, also take its pictures. Wide windows can be higher by
    `more` pixels."""

    def shoot(
        name: str, address: str, prepare: Callable[[Page], None] = lambda page: None, more: int = 0
    ) -> None:
        for look, (width, height, dark) in LOOKS.items():
            page = pages.open(address, width=width, dark=dark)
            page.set_viewport_size({"width": width, "height": height + (more if width == WIDE else 0)})
            prepare(page)
            assert page.locator("h1").count() == 1
            assert page.evaluate("document.documentElement.scrollWidth") == width, (name, look)
            file = PICTURES / f"{name}-{look}.webp"
            if request.config.getoption("--update"):
                file.parent.mkdir(exist_ok=True)
                taken = Image.open(BytesIO(page.screenshot())).convert("RGB")
                taken.quantize(COLORS).convert("RGB").save(file, lossless=True, method=6)
            assert file.is_file(), f"{file} is missing: call pytest --update"
            page.context.close()

    return shoot


@pytest.fixture(scope="module")
def react(bundled_demo: Demo) -> Iterator[subprocess.Popen[bytes]]:
    """The demo with ReAct, in the same folder, while it is played."""
    settings = ("method=react", "run.in_flight=4", f"run.dir={bundled_demo.run.with_name('react')}")
    process = subprocess.Popen(
        command("run", "experiment=demo", *settings),
        cwd=CHECKOUT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    yield process
    process.terminate()  # has no effect on a finished one
    process.wait()


@pytest.fixture(scope="module")
def viewer(bundled_demo: Demo, react: subprocess.Popen[bytes]) -> Iterator[str]:
    """The address of the viewer of both runs."""
    with serve(bundled_demo.run.parent) as address:
        yield address


@pytest.fixture(scope="module")
def finished(viewer: str, react: subprocess.Popen[bytes]) -> str:
    """The address of the viewer as soon as both runs are finished."""
    assert react.wait(timeout=HANGS_S) == 0
    return viewer


@pytest.mark.parametrize("name", PAGES)
def test_a_page(finished: str, shoot: Shoot, name: str) -> None:
    address, more = PAGES[name]
    shoot(name, urljoin(finished, address), more=more)


@pytest.fixture(scope="module")
def failure(bundled_demo: Demo) -> EpisodeRow:
    """A test episode with skills that failed; if all succeeded, the first one."""
    rows = [row for row in load(bundled_demo.run).rows if row.phase == "test" and row.policy]
    return min(rows, key=lambda row: (row.success, -row.checkpoint, row.episode))


def test_the_playback_of_an_episode(finished: str, shoot: Shoot, failure: EpisodeRow) -> None:
    def go_into_a_skill(page: Page) -> None:
        page.locator("#playback svg.picture").wait_for()
        for _ in range(2):
            page.get_by_role("button", name="Next step").click()
        expect(page.locator("#playback output")).to_have_text(re.compile("^2 / "))
        page.locator("#playback").evaluate("each => each.scrollIntoView()")

    shoot("episode", urljoin(finished, f"{RUN}/{failure.episode}/1.html"), go_into_a_skill)


def test_the_report(finished: str, bundled_demo: Demo, shoot: Shoot, tmp_path: Path) -> None:
    done = in_process("report", str(bundled_demo.run.parent), "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    shoot("report", (tmp_path / "report.html").as_uri())
