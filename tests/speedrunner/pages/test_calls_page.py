"""All calls of a turn, on pages of bounded size."""

from __future__ import annotations

import re
from pathlib import Path

from serving.tokens.tools import ToolCall
from serving.usage import Usage
from speedrunner.pages.calls_page import PAGE_CALLS
from speedrunner.pages.site import Site
from speedrunner.pages.static import pages
from speedrunner.pages.turns import ROOM_CHARS
from speedrunner.store.records import CallNode, Message, Policy, Turn
from speedrunner.store.rundir import RunDirectory
from tests.speedrunner.pages.runs import CONFIG, append
from tests.speedrunner.run_samples import trajectory


def run(folder: Path, *calls: CallNode) -> Path:
    """A run with one turn that made these calls."""
    executed = CallNode("walk", "skill", {}, "done", calls=[*calls])
    turn = Turn([Message("user", "go")], "", Usage(), 0.1, call=ToolCall("walk", {}), executed=executed)
    with RunDirectory.open_for_writing(folder) as directory:
        directory.write_config(CONFIG)
        directory.write_policy(Policy(version=0))
        append(directory, trajectory(turns=[turn]))
    return folder


def page(site: Site, name: str) -> str:
    found = site.answer(f"runs/run/train/0000/{name}.html", {})
    assert found.status == 200, found.content
    return found.content.decode()


def test_twenty_thousand_calls_are_folded_and_paged(tmp_path: Path) -> None:
    calls = [CallNode("note", "skill", {"number": number}, f"noted {number}") for number in range(20_000)]
    site = Site(run(tmp_path / "run", *calls))
    episode = page(site, "1")
    assert len(episode) < 100_000
    assert "19,900 further calls" in episode
    assert 'href="calls-1-1.html"' in episode
    last = page(site, "calls-1-41")
    assert "noted 19999" in last
    assert "Page 41 of 41" in last
    assert page(site, "calls-1-2").count("<li class=") == PAGE_CALLS
    assert site.answer("runs/run/train/0000/calls-1-42.html", {}).status == 404
    assert site.answer("runs/run/train/0000/calls-2-1.html", {}).status == 404


def test_long_texts_are_cut_on_the_episode_s_page_and_whole_on_those_of_calls(tmp_path: Path) -> None:
    text = "no code!\n" * 3_500
    calls = [CallNode("run", "tool", {"code": f"{text}# end {number}"}) for number in range(20)]
    site = Site(run(tmp_path / "run", *calls))
    assert len(re.sub("<[^>]*>", "", page(site, "1"))) < 2 * ROOM_CHARS
    found = {path: answer.content.decode() for path, answer in pages(site) if "/calls-" in path}
    assert len(found) > 2
    for number in range(20):
        assert sum(f"# end {number}<" in text for text in found.values()) == 1


def test_a_turn_whose_calls_all_fit_has_no_such_pages_linked(tmp_path: Path) -> None:
    site = Site(run(tmp_path / "run", CallNode("note", "skill", {}, "noted")))
    assert "calls-1-1.html" not in page(site, "1")
