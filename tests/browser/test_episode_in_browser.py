"""An episode's page in a browser: playback by mouse and keyboard, served and from files."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urljoin

import msgspec
import pytest
from playwright.sync_api import Page, expect

import envs
from envs import Task
from serving.tokens.tools import ToolCall
from serving.usage import Usage
from speedrunner.store.records import CallNode, Message, Policy, Skill, Termination, Turn
from speedrunner.store.rundir import RunDirectory
from tests.browser.conftest import NARROW, Pages
from tests.speedrunner.pages.runs import CONFIG, append
from tests.speedrunner.run_samples import trajectory

pytestmark = pytest.mark.slow

SOURCE = 'def spin() -> str:\n    """Turn twice."""\n    turn_left()\n    return turn_right()'


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with an episode whose third primitive fails, and one without recorded lines."""
    folder = tmp_path_factory.mktemp("played") / "run"
    task = Task("babyai", "pick_up_seq_go_to", 3)
    env = envs.make("babyai")
    env.reset(task)
    left, right = (
        CallNode(name, "primitive", {}, env.call(name), actions=1, line=line)
        for name, line in (("turn_left", 3), ("turn_right", 4))
    )
    refused = CallNode("drop", "primitive", {"far": True}, error="TypeError: drop()", line=4)
    unlined = [msgspec.structs.replace(each, line=msgspec.UNSET) for each in (left, right)]

    def turn(*calls: CallNode) -> Turn:
        skill = CallNode("spin", "skill", {}, "done", calls=[*calls])
        return Turn([Message("user", "go")], "", Usage(), 0.1, call=ToolCall("spin", {}), executed=skill)

    ended = {"task": task, "termination": Termination.CALL_LIMIT, "outcome": env.outcome()}
    with RunDirectory.open_for_writing(folder) as run:
        run.write_config(CONFIG)
        skills = (Skill(name="spin", public=True, created=0, edited=0),)
        run.write_policy(Policy(version=0, module=SOURCE, skills=skills))
        append(run, trajectory("train/0000", turns=[turn(left, right, refused)], **ended))
        append(
            run,
            trajectory("train/0001", turns=[turn(*unlined)], **(ended | {"task": Task("babyai", "gone", 3)})),
        )
    return folder


def is_at(page: Page, step: int, last: int = 3) -> None:
    """Wait until the playback shows a step."""
    expect(page.locator("#playback output")).to_have_text(f"{step} / {last}")


@pytest.mark.parametrize("kind", ["served", "written"])
def test_each_step_shows_the_world_the_call_stack_and_the_line(
    request: pytest.FixtureRequest, pages: Pages, kind: str
) -> None:
    page = pages.open(urljoin(request.getfixturevalue(kind), "runs/run/train/0000/1.html"))
    picture = page.locator("#playback .world img")
    picture.wait_for()
    start = picture.get_attribute("src")
    assert page.locator(".stack code").all_inner_texts() == ["spin()", "turn_left()"]  # the first step
    page.get_by_role("button", name="Next step").click()
    is_at(page, 1)
    assert picture.get_attribute("src") != start
    assert page.locator(".stack code").all_inner_texts() == ["spin()", "turn_left()"]
    assert page.locator("pre.source .now").inner_text().strip() == "turn_left()"
    page.get_by_role("button", name="Next step").click()
    is_at(page, 2)
    assert page.locator("pre.source .now").inner_text().strip() == "return turn_right()"
    assert picture.get_attribute("src") == start
    page.get_by_role("button", name="First error").click()
    is_at(page, 3)
    assert page.locator("pre.result").inner_text() == "TypeError: drop()"
    page.get_by_role("button", name="Previous step").click()
    is_at(page, 2)


def test_play_runs_to_the_end_and_stops(served: str, pages: Pages) -> None:
    page = pages.open(urljoin(served, "runs/run/train/0000/1.html"))
    page.locator("#playback select").select_option("30")
    page.get_by_role("button", name="Play").click()
    is_at(page, 3)
    expect(page.get_by_role("button", name="Play")).to_be_visible()


def test_the_keyboard_moves_the_slider_and_between_episodes(served: str, pages: Pages) -> None:
    page = pages.open(urljoin(served, "runs/run/train/0000/1.html"))
    slider = page.get_by_role("slider", name="Step")
    is_at(page, 0)
    slider.focus()
    page.keyboard.press("End")
    is_at(page, 3)
    page.keyboard.press("ArrowLeft")
    is_at(page, 2)
    expect(slider).to_have_attribute("aria-valuetext", "step 2 of 3, turn 1: turn_right()")
    page.locator("h1").click()
    page.keyboard.press("n")
    page.wait_for_url("**/train/0001/1.html")
    page.keyboard.press("p")
    page.wait_for_url("**/train/0000/1.html")


def test_a_step_that_the_replay_does_not_reach_has_no_picture_and_one_without_a_line_no_mark(
    written: str, pages: Pages
) -> None:
    page = pages.open(urljoin(written, "runs/run/train/0001/1.html"), width=NARROW)
    page.locator("#turn-1 a[data-step]").click()
    is_at(page, 1, 2)
    assert page.locator("#playback figcaption").inner_text() == "This step has no picture."
    assert page.locator(".stack button").count() == 0  # no line is recorded
    assert "def spin() -> str:" in page.locator("#playback pre.source").inner_text()
