"""The pages that compare conditions."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from serving.model_configs import load_model_config
from speedrunner.pages.site import Site
from speedrunner.store.rundir import RunDirectory
from tests.page_elements import Elements
from tests.speedrunner.results.small_runs import SmallRun, learnt
from tests.speedrunner.run_samples import process

REACT, LEARNT = "condition-babyai-react-tiny-random", "condition-babyai-speedrunner-tiny-random"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """Two seeds of two methods, a third one of which is behind, a run without a checkpoint of theirs, and one
    that has played nothing."""
    folder = tmp_path_factory.mktemp("compared")
    for seed in (0, 1, 2):
        if seed < 2:
            learnt(folder / f"learnt-{seed}", run={"seed": seed})
        run = SmallRun(folder / f"react-{seed}", method={"name": "react"}, run={"seed": seed})
        run.policy(0, {})
        for point in (0, 2, 4)[: 3 - seed // 2]:
            run.test(point, 0, [0.0, 0.25])
    alone = SmallRun(folder / "opo", method={"name": "opo"})
    alone.policy(0, {})
    alone.test(9, 0, [0.0, 0.0])
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
    assert '<td class="number">1.000</td>' in answer
    assert "not with react: no checkpoint was finished by all conditions" in answer
    assert "crafter" not in Elements(answer).text.partition("babyai")[0]
    assert 'href="runs/learnt-1/index.html">seed 1</a>' in answer
    assert 'href="runs/react-2/index.html">seed 2 (behind)</a>' in answer


def test_pages_of_a_model_with_a_caveat_are_grey_and_say_it(tmp_path: Path) -> None:
    teaching = process(msgspec.structs.replace(load_model_config("tiny-random"), caveat="It teaches."))
    for name in ("react", "asi"):
        run = SmallRun(tmp_path / name, method={"name": name})
        run.policy(0, {})
        run.test(0, 0, [0.0, 0.25])
        with RunDirectory.open_for_writing(tmp_path / name) as directory:
            directory.append_process(teaching)
    site = Site(tmp_path)
    first, second = (f"condition-babyai-{name}-tiny-random" for name in ("react", "asi"))
    for path in ("index.html", "compare.html", f"compare/{first}/{second}.html"):
        text = site.answer(path).content.decode()
        assert '<p class="caveat">tiny-random: It teaches</p>' in text
        assert ('<section class="grey">' in text) == (path != "index.html")


def test_a_condition_is_compared_with_another_by_seed_and_task(site: Site) -> None:
    shown = " ".join(text_of(site, f"compare/{REACT}/{LEARNT}.html").split())
    assert "score0.1251.0000.875" in shown
    assert "method.name: react -> speedrunner" in shown
    page = site.answer(f"compare/{REACT}/{LEARNT}.html").content.decode()
    captions = re.findall("<figcaption>(.*?)</figcaption>", page)
    assert captions == ["score", "output tokens", "cached share"]
    assert 'href="../../runs/react-1/test/0004/0000/1.html">seed 1</a>' in page
    assert "score: speedrunner" in shown
    assert "2 of 2 tasks differ in score." in shown
    assert site.answer("runs/react-1/test/0004/0000/1.html").status == 200


@pytest.mark.parametrize(
    ("first", "second", "problem"),
    [
        (LEARNT, "none", "none is not a condition of this folder"),
        (LEARNT, "condition-babyai-opo-tiny-random", "no checkpoint was finished by all conditions"),
    ],
)
def test_what_cannot_be_compared_is_explained(site: Site, first: str, second: str, problem: str) -> None:
    answer = site.answer(f"compare/{first}/{second}.html")
    found = Elements(answer.content.decode())
    assert answer.status == 404
    assert problem in found.text
    assert found.names.count("script") == 1
