"""A library over time, its versions, and its skills."""

from __future__ import annotations

import re
from pathlib import Path

from speedrunner.pages.site import Site
from speedrunner.store.run_data import load
from tests.page_elements import Elements
from tests.speedrunner.results.small_runs import SmallRun, learnt, skill


def shown(tmp_path: Path, address: str) -> str:
    answer = Site(tmp_path).answer(f"runs/run/{address}")
    assert answer.status == 200, answer.content
    return answer.content.decode()


def table_rows(tmp_path: Path) -> list[list[str]]:
    (table,) = re.findall('<table class="timeline">.*?</table>', shown(tmp_path, "library.html"), re.S)
    return [re.findall("<td[^>]*>(.*?)</td>", row) for row in re.findall("<tr>(.*?)</tr>", table)[1:]]


def test_each_version_has_its_changes_and_the_mean_score_of_its_episodes(tmp_path: Path) -> None:
    learnt(tmp_path / "run")
    rows = table_rows(tmp_path)
    assert [[Elements(cell).text for cell in row[2:4]] for row in rows] == [
        ["0", "–"], ["2", "written home, written _step"], ["1", "removed _step, edited home"],
    ]  # fmt: skip
    data = load(tmp_path / "run")
    for version, row in enumerate(rows):
        scores = [each.score for each in data.rows if each.policy == version and each.score is not None]
        assert row[4:6] == [str(len(scores)), f"{sum(scores) / len(scores):.4g}"]
    assert '<a href="library/0002.html#change-home">edited home</a>' in rows[2][3]
    assert {"change-home", "change-_step"} <= set(Elements(shown(tmp_path, "library/0002.html")).ids)


def test_a_renamed_skill_is_named(tmp_path: Path) -> None:
    run = SmallRun(tmp_path / "run")
    run.policy(0, {"go": "return walk()"})
    run.train(0, [skill("go"), skill("go")])
    run.policy(1, {"walk_far": "return walk()"}, {"walk_far": 0})
    later = Elements(table_rows(tmp_path)[1][3]).text
    assert "renamed to walk_far" in later


def test_skills_have_their_calls_failures_and_last_change(tmp_path: Path) -> None:
    learnt(tmp_path / "run")
    text = shown(tmp_path, "skills.html")

    def cells(name: str) -> list[str]:
        row = text.partition(f">{name}</a>")[2].partition("</tr>")[0]
        return re.findall("<td[^>]*>(.*?)</td>", row)

    home, step = cells("home"), cells("_step")
    assert (home[:3], home[-2:]) == (["actor", "6", "0"], ["2", "–"])  # edited by sleep 2
    assert (step[0], step[-2:]) == ("skills", ["1", "2"])  # deleted by it
