"""Versions of a library as columns, skills as rows."""

from __future__ import annotations

import re
from pathlib import Path

from speedrunner.pages.library_pages import Row, count_calls, history_page, list_rows
from speedrunner.pages.site import Site
from speedrunner.results.skill_table import skill_history
from speedrunner.store.run_data import load
from tests.page_elements import Elements
from tests.speedrunner.results.small_runs import SmallRun, learnt, skill


def rows(path: Path) -> list[Row]:
    run = load(path)
    return list_rows(run, skill_history(run))


def cells(row: Row) -> list[tuple[str, int, int]]:
    return [(each.kind, each.version, each.calls) for each in row.cells]


def test_a_row_has_what_each_sleep_did_and_the_calls_with_each_version(tmp_path: Path) -> None:
    home, step = rows(learnt(tmp_path / "run").path)
    assert cells(home) == [("absent", 0, 0), ("new", 1, 4), ("edited", 2, 2)]
    assert [each.score for each in home.cells] == [None, 0.875, 1.0]
    assert cells(step) == [("absent", 0, 0), ("new", 1, 2), ("deleted", 2, 0)]
    assert (step.public, step.version) == (False, 1)


def test_skills_that_the_actor_sees_come_first(tmp_path: Path) -> None:
    run = SmallRun(tmp_path / "run")
    run.policy(0, {"_step": "return walk()", "home": "return _step()"})
    run.train(0, [skill("home", 4, None, skill("_step"), skill("_step"))])
    data = load(run.path)
    assert [row.name for row in history_page(data)["rows"]] == ["home", "_step"]


def test_a_renamed_skill_has_one_row(tmp_path: Path) -> None:
    run = SmallRun(tmp_path / "run")
    run.policy(0, {"go": "return walk()"})
    run.train(0, [skill("go"), skill("go")])
    run.policy(1, {"walk_far": "return walk()"}, {"walk_far": 0})
    run.train(1, [skill("walk_far")])
    (row,) = rows(run.path)
    assert (row.name, row.earlier) == ("walk_far", ["go"])
    assert cells(row) == [("new", 0, 2), ("renamed", 1, 1)]


def shown(tmp_path: Path, address: str) -> str:
    answer = Site(tmp_path).answer(f"runs/run/{address}", {})
    assert answer.status == 200, answer.content
    return answer.content.decode()


def test_each_version_has_its_changes_and_the_mean_score_of_its_episodes(tmp_path: Path) -> None:
    learnt(tmp_path / "run")
    (table,) = re.findall('<table class="timeline">.*?</table>', shown(tmp_path, "library.html"), re.S)
    rows = [re.findall("<td[^>]*>(.*?)</td>", row) for row in re.findall("<tr>(.*?)</tr>", table)[1:]]
    assert [row[2:7] for row in rows] == [
        ["0", "–", "–", "–", "–"], ["2", "2", "–", "–", "–"], ["1", "–", "1", "–", "1"],
    ]  # fmt: skip
    data = load(tmp_path / "run")
    for version, row in enumerate(rows):
        scores = [each.score for each in data.rows if each.policy == version and each.score is not None]
        assert row[7:9] == [str(len(scores)), f"{sum(scores) / len(scores):.3f}"]


def test_the_history_leads_to_differences(tmp_path: Path) -> None:
    learnt(tmp_path / "run")
    text = shown(tmp_path, "library.html")
    assert '<a href="library/0002.html#change-home" title="edited, version 2">edited</a>' in text
    assert '<a href="library/0002.html#change-_step" title="deleted, version 2">deleted</a>' in text
    assert '<span class="use">4× 0.88</span>' in text
    assert {"change-home", "change-_step"} <= set(Elements(shown(tmp_path, "library/0002.html")).ids)


def test_a_version_has_what_each_skill_calls_and_how_often_it_ran(tmp_path: Path) -> None:
    run = SmallRun(tmp_path / "run")
    run.policy(0, {"_step": "return walk()", "home": "return _step()"})
    run.train(0, [skill("home", 4, None, skill("_step"), skill("_step"))])
    calls = count_calls(load(run.path), 0)
    assert calls == {("", "home"): 1, ("home", "_step"): 2}
    text = " ".join(Elements(shown(tmp_path, "library/0000.html")).text.split())
    assert "home → _step ×2" in text


def test_skills_have_their_calls_failures_and_last_change(tmp_path: Path) -> None:
    learnt(tmp_path / "run")
    text = shown(tmp_path, "skills.html")

    def cells(name: str) -> list[str]:
        row = text.partition(f">{name}</a>")[2].partition("</tr>")[0]
        return re.findall("<td[^>]*>(.*?)</td>", row)

    home, step = cells("home"), cells("_step")
    assert (home[:3], home[-2:]) == (["actor", "6", "0"], ["2", "–"])  # edited by sleep 2
    assert (step[0], step[-2:]) == ("skills", ["1", "2"])  # deleted by it
