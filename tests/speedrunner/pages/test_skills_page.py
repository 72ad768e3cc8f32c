"""The table of skills, with their calls and changes."""

from __future__ import annotations

from pathlib import Path

from speedrunner.pages.site import Site
from tests.page_elements import Elements
from tests.speedrunner.results.small_runs import SmallRun, learnt, skill


def page(path: Path) -> str:
    found = Site(path).answer("runs/run/skills.html", {})
    assert found.status == 200, found.content
    return found.content.decode()


def test_skills_have_calls_and_their_history(tmp_path: Path) -> None:
    run = SmallRun(tmp_path / "run")
    run.policy(0, {})
    run.test(0, 0, [0.0, 1.0], [None] * 4)
    run.train(0, [None])
    run.policy(1, {"home": "return walk()", "_never": "return walk()"})
    run.test(2, 1, [1.0, 1.0], [skill("home", 4)])
    text = page(run.path)
    assert '<td class="number">2</td>' in text
    assert 'href="library/0001.html#skill-home"' in text
    assert "1 skill that was never called" in text
    assert "written in sleep 1" in text


def test_skills_that_the_actor_called_most_come_first(tmp_path: Path) -> None:
    text = page(learnt(tmp_path / "run").path)
    rows = text.partition("<tbody>")[2].partition("</tbody>")[0]
    assert rows.index(">home<") < rows.index(">_step<")
    assert "removed in sleep 2" in rows


def test_a_run_without_skills_says_so(tmp_path: Path) -> None:
    run = SmallRun(tmp_path / "run")
    run.policy(0, {})
    assert "No sleep has made a skill yet." in Elements(page(run.path)).text
