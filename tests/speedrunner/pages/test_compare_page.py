"""The pages that compare runs, checkpoints and conditions."""

from __future__ import annotations

from pathlib import Path

import pytest

from speedrunner.pages.site import Site
from tests.page_elements import Elements
from tests.speedrunner.pages.runs import hostile_run
from tests.speedrunner.results.small_runs import SmallRun, learnt

REACT, LEARNT = "condition-babyai-react-tiny-random", "condition-babyai-speedrunner-tiny-random"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """Two seeds of two methods, and a run of another environment."""
    folder = tmp_path_factory.mktemp("compared")
    for seed in (0, 1):
        learnt(folder / f"learnt-{seed}", run={"seed": seed})
        run = SmallRun(folder / f"react-{seed}", method={"name": "react"}, run={"seed": seed})
        run.policy(0, {})
        for point in (0, 2, 4):
            run.test(point, 0, [0.0, 0.25])
    other = SmallRun(folder / "crafter", env={"name": "crafter", "num_dists": None})
    other.policy(0, {})
    return Site(folder)


def text_of(site: Site, path: str) -> str:
    answer = site.answer(path)
    assert answer.status == 200, answer.content
    return Elements(answer.content.decode()).text


def test_conditions_have_their_seeds_scores_and_comparisons(site: Site) -> None:
    answer = site.answer("compare.html").content.decode()
    assert f'href="compare/{REACT}/{LEARNT}.html"' in answer
    assert f'href="compare/{LEARNT}@0/{LEARNT}@4.html"' in answer
    assert '<td class="number">1</td>' in answer
    assert 'href="runs/learnt-1/index.html">seed 1</a>' in answer


def test_a_condition_is_compared_with_another_by_seed_and_task(site: Site) -> None:
    shown = " ".join(text_of(site, f"compare/{REACT}/{LEARNT}.html").split())
    assert "score0.12510.875" in shown
    assert "method.name: react -> speedrunner" in shown
    page = site.answer(f"compare/{REACT}/{LEARNT}.html").content.decode()
    assert 'href="../../runs/react-1/test/0004/0000/1.html"' in page
    assert site.answer("runs/react-1/test/0004/0000/1.html").status == 200


def test_checkpoints_of_one_run_are_compared(site: Site) -> None:
    shown = " ".join(text_of(site, "compare/learnt-0@0/learnt-0@4.html").split())
    assert "learnt-0 after 0 rollouts → learnt-0 after 4 rollouts" in shown
    assert "score0.2510.75" in shown
    assert "same configuration" in shown


@pytest.mark.parametrize(
    ("first", "second", "problem"),
    [
        ("learnt-0", "none", "none is not a run or condition of this folder"),
        ("learnt-0@3", "react-0", "learnt-0 has not finished checkpoint 3: it has 0, 2, 4"),
        ("learnt-0", "crafter", "no checkpoint was finished by both"),
    ],
)
def test_what_cannot_be_compared_is_explained(site: Site, first: str, second: str, problem: str) -> None:
    answer = site.answer(f"compare/{first}/{second}.html")
    found = Elements(answer.content.decode())
    assert answer.status == 404
    assert problem in found.text
    assert found.names.count("script") == 1


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    hostile_run(tmp_path / "<img src=x onerror=alert(1)>")
    found = Elements(Site(tmp_path).answer("compare.html").content.decode())
    assert found.names.count("script") == 1
    assert all(own.get("src", "").startswith("data:") for name, own in found.elements if name == "img")
