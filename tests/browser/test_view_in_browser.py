"""The viewer in a browser: drawn, quiet, within reach of the keyboard, on narrow and wide pages."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urljoin

import pytest
from playwright.sync_api import expect

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


def test_a_search_is_filled_in_and_followed_to_its_turn(served: str, pages: Pages) -> None:
    page = pages.open(urljoin(served, "runs/long/episodes.html"))
    page.keyboard.press("/")
    page.keyboard.type("needle")
    page.keyboard.press("Enter")
    page.wait_for_url("**text=needle**")
    page.get_by_role("link", name=f"train/0000, turn {TURNS}").click()
    page.wait_for_url(f"**/2.html#turn-{TURNS}")
    assert "needle" in page.locator(f"#turn-{TURNS}").inner_text()


def test_rows_of_written_pages_are_found_without_a_server(written: str, pages: Pages) -> None:
    page = pages.open(urljoin(written, "runs/long/episodes.html"))
    row = page.locator("#episodes tbody tr")
    page.get_by_label("Show rows with").fill("no such row")
    assert not row.is_visible()
    page.get_by_label("Show rows with").fill("call limit")
    assert row.is_visible()


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
    page.keyboard.press("/")
    page.wait_for_url("**/runs/long/episodes.html#search")
    expect(page.get_by_role("searchbox", name="Text")).to_be_focused()


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


def test_words_in_the_texts_of_written_pages_are_found_without_a_server(written: str, pages: Pages) -> None:
    page = pages.open(urljoin(written, "runs/long/episodes.html"))
    for text, count in (("nothere", 0), ("needle", 1), ("thought nee", 1), ("needle!", 1), ("nee!", 0)):
        page.fill("#texts", text)
        page.get_by_text(f"{count} of 1 episodes", exact=True).wait_for()
    page.fill("#texts", "needle")
    page.get_by_text(f"train/0000, turn {TURNS}").click()
    page.wait_for_url(f"**/train/0000/2.html#turn-{TURNS}")
    assert "needle" in page.locator(f"#turn-{TURNS}").inner_text()


def test_an_update_loses_nothing_that_a_person_has_open(served: str, folder: Path, pages: Pages) -> None:
    with RunDirectory.open_for_writing(folder / "open") as run:
        run.write_config(CONFIG)
        page = pages.open(urljoin(served, "runs/open/episodes.html"), width=NARROW)
        page.fill("input[name=skill]", "typed")
        page.evaluate("""() => {
            document.querySelector("#episodes").scrollIntoView();
            document.querySelector(".wide").scrollLeft = 60;
            window.before = { table: document.querySelector("#episodes"), y: scrollY };
        }""")
        append(run, trajectory())
        page.get_by_text("1 of 1 episodes").wait_for()
        assert page.input_value("input[name=skill]") == "typed"
        assert page.evaluate("document.activeElement.name") == "skill"
        assert page.evaluate("document.querySelector('.wide').scrollLeft") == 60
        assert page.evaluate("window.before.table === document.querySelector('#episodes')")


def test_the_live_page_updates_while_a_sweep_runs(served: str, folder: Path, pages: Pages) -> None:
    with RunDirectory.open_for_writing(folder / "live") as run:
        run.write_config(CONFIG)
        for width, dark in ((NARROW, True), (WIDE, False)):
            page = pages.open(urljoin(served, "live.html"), width=width, dark=dark)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        row = page.locator("#run-live")
        assert "running" in row.inner_text()
        append(run, trajectory())
        row.get_by_text("1 of").wait_for()


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
