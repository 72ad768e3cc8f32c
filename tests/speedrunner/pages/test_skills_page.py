"""The table of skills with what episodes that called them saved."""

from __future__ import annotations

from pathlib import Path

import pytest

from speedrunner.pages.site import Site
from speedrunner.pages.skills_page import usd_form
from speedrunner.results.inference import Estimate
from tests.page_elements import Elements
from tests.speedrunner.results.small_runs import SmallRun, learnt, skill


def page(path: Path) -> str:
    found = Site(path).answer("runs/run/skills.html", {})
    assert found.status == 200, found.content
    return found.content.decode()


def test_skills_have_calls_savings_with_intervals_and_their_history(tmp_path: Path) -> None:
    run = SmallRun(tmp_path / "run")
    run.policy(0, {})
    run.test(0, 0, [0.0, 1.0], [None] * 4)
    run.train(0, [None])
    run.policy(1, {"home": "return walk()", "_never": "return walk()"})
    run.test(2, 1, [1.0, 1.0], [skill("home", 4)])
    text = page(run.path)
    assert '<td class="number" data-value="3.0">3.0<br><span class="note">3.0 to 3.0</span></td>' in text
    assert '<td class="number" data-value="0.5">+0.50<br>' in text
    assert 'href="library/0001.html#skill-home"' in text
    assert "not the effect of the skill alone" in text
    assert "1 skill that was never called" in text
    assert "written in sleep 1, after train/0000 to train/0000: called 2 times" in text


def test_skills_that_the_actor_called_most_come_first(tmp_path: Path) -> None:
    text = page(learnt(tmp_path / "run").path)
    rows = text.partition("<tbody>")[2].partition("</tbody>")[0]
    assert rows.index(">home<") < rows.index(">_step<")
    assert "removed in sleep 2" in rows


def test_a_run_without_skills_says_so(tmp_path: Path) -> None:
    run = SmallRun(tmp_path / "run")
    run.policy(0, {})
    assert "No sleep has made a skill yet." in Elements(page(run.path)).text


def test_a_run_without_prices_shows_its_calls_and_says_what_is_missing(tmp_path: Path) -> None:
    run = learnt(tmp_path / "run")
    (run.path / "processes.jsonl").unlink()
    text = page(run.path)
    assert "Savings are unknown" in text
    assert "processes.jsonl, which records them, has no complete row" in text
    assert ">home</a>" in text


@pytest.mark.parametrize(
    ("mean", "written"),
    [(0.00123, "0.0012"), (-0.5, "-0.50"), (12.3, "12.30"), (0.0, "0.00"), (1e-12, "0.00")],
)
def test_usd_have_two_significant_digits(mean: float, written: str) -> None:
    estimate = Estimate(mean, None, None, 1)
    assert usd_form(estimate).format(mean) == written
