"""The viewer in a browser: drawn, quiet, within reach of the keyboard, on narrow and wide pages."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urljoin

import pytest

from speedrunner.store.rundir import RunDirectory
from tests.browser.conftest import COLORS, NARROW, WIDE, Pages
from tests.speedrunner.pages.runs import CONFIG, append, hostile_run, long_run
from tests.speedrunner.results.small_runs import learnt as write_learnt
from tests.speedrunner.run_samples import trajectory

pytestmark = pytest.mark.slow

TURNS = 120


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("viewed")
    long_run(folder / "long", TURNS)
    hostile_run(folder / "hostile")
    write_learnt(folder / "learnt")
    return folder


PAGES = (
    *("index.html", "runs/long/index.html", "runs/long/episodes.html", "runs/long/train/0000/2.html"),
    *("runs/hostile/train/0000/1.html", "runs/hostile/library/0001.html", "runs/hostile/sleep/0001/1.html"),
    *("runs/hostile/skills.html", "compare.html", "compare/learnt@0/learnt@4.html"),
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
        colours = page.evaluate(COLORS)
        assert colours == (
            ["rgb(230, 232, 235)", "rgb(20, 23, 27)"] if dark else ["rgb(26, 29, 33)", "rgb(255, 255, 255)"]
        )
        page.context.close()


def test_pictures_are_drawn_where_they_come_later(served: str, pages: Pages) -> None:
    page = pages.open(urljoin(served, "runs/long/train/0000/1.html"))
    picture = page.locator("#turn-1 svg.picture")
    picture.wait_for()
    box = picture.bounding_box()
    assert box is not None
    assert box["width"] > 100
    assert picture.get_attribute("aria-label")
    assert page.locator(".turn svg.picture").count() == 100


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


NAMELESS = """
[...document.querySelectorAll("a, button, input, select, summary, nav, [role=region], [role=img]")].filter(
    (each) => !(each.textContent.trim() || each.ariaLabel || each.labels?.[0]?.textContent.trim())
).map((each) => each.outerHTML)"""


def test_everything_that_can_be_used_has_a_name(served: str, pages: Pages) -> None:
    page = pages.open(urljoin(served, "runs/long/episodes.html"))
    nameless = page.evaluate(NAMELESS)
    assert nameless == []


def test_a_run_that_goes_on_grows_before_one_s_eyes(served: str, folder: Path, pages: Pages) -> None:
    with RunDirectory.open_for_writing(folder / "growing") as run:
        run.write_config(CONFIG)
        page = pages.open(urljoin(served, "runs/growing/index.html"))
        assert "No episode is finished yet" in page.inner_text("main")
        page.locator("h2").first.click()
        append(run, trajectory())
        page.get_by_role("region", name="Terminations").wait_for()


MERGED = """() => {
    const make = (html) => {
        const made = document.createElement("div");
        made.innerHTML = html;
        return made;
    };
    const now = make('<details><summary>s</summary>old</details><p id="b">two</p><input value="1">');
    const [folded, row, field] = now.children;
    folded.open = true;
    field.value = "typed";
    const rows = '<p id="a">one</p><p id="b">2</p>';
    update(now, make(`<details><summary>s</summary>new</details>${rows}<input value="3">`));
    const isKept = now.children[2] === row;
    return [folded.open, folded.textContent, isKept, row.textContent, field.value, now.children.length];
}"""


def test_newer_content_leaves_open_parts_and_typed_text_in_their_elements(served: str, pages: Pages) -> None:
    page = pages.open(urljoin(served, "index.html"))
    assert page.evaluate(MERGED) == [True, "snew", True, "2", "typed", 4]
