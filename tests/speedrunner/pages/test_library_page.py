"""One version of a library."""

from __future__ import annotations

from pathlib import Path

from speedrunner.pages.library_page import count_calls

from speedrunner.pages.site import Site
from speedrunner.store.records import CallNode
from speedrunner.store.run_data import load
from tests.page_elements import Elements
from tests.speedrunner.results.small_runs import SmallRun, learnt, skill


def page(path: Path, version: int) -> str:
    found = Site(path).answer(f"runs/run/library/{version:04d}.html", {})
    assert found.status == 200, found.content
    return found.content.decode()


def test_calls_are_counted_by_caller_in_episodes_of_the_version(tmp_path: Path) -> None:
    run = load(learnt(tmp_path / "run").path)
    assert count_calls(run, 1) == {("", "home"): 4, ("home", "_step"): 2}
    assert count_calls(run, 2) == {("", "home"): 2}


def test_what_a_program_calls_counts_as_called_by_the_actor(tmp_path: Path) -> None:
    run = SmallRun(tmp_path / "run")
    run.policy(0, {"go": "return walk()"})
    run.train(
        0,
        [
            CallNode(
                "run_program", "tool", {}, calls=[skill("go", 1, None, CallNode("walk", "primitive", {}))]
            )
        ],
    )
    assert count_calls(load(run.path), 0) == {("", "go"): 1, ("go", "walk"): 1}


def test_each_changed_skill_has_a_diff_of_its_own(tmp_path: Path) -> None:
    text = page(learnt(tmp_path / "run").path, 2)
    assert text.count('<details class="fold change" open>') == 2
    plain = Elements(text).text
    assert "-    return _step()" in plain
    assert "+    return walk()" in plain
    assert "called its skills 2 times" in plain
