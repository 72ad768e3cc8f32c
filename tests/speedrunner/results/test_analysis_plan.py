"""The analysis that sweeps fix, and reports that keep to it or not."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from speedrunner.config.grid import grid_of
from speedrunner.plain.plain_yaml import read_yaml, write_yaml
from speedrunner.results.analysis_plan import compare_plans, write_plan
from speedrunner.results.claims import JudgedClaim, JudgedRow, list_claims
from speedrunner.results.run_result import RunResult
from speedrunner.store.stored_run import PLAN
from tests.speedrunner.results.summaries import summary


def plan(folder: Path, seeds: str, name: str = "main") -> list[RunResult]:
    """Plan runs of ReAct and OPO in BabyAI as `sweep` does, and return them as if they were played."""
    words = [f"experiment={name}", "env=babyai", "method=react,opo", f"run.seed={seeds}"]
    runs = grid_of(words, folder).runs()
    write_plan(f"experiment={name}", [run.config for run in runs])
    names = [(run.config.run.dir, run.config.method.name, run.config.run.seed) for run in runs]
    return [
        replace(summary("babyai", name, seed, model="gpt-5.4-mini"), path=path) for path, name, seed in names
    ]


def judged(measure: str) -> JudgedClaim:
    """The claim of `main` with this measure that has an interval."""
    main = [row for rows in list_claims() for row in rows if rows[0].experiment == "main"]
    row = next(row for row in main if row.measure == measure)
    found = JudgedRow(row, "gpt-5.4-mini", True, 2, 0.0, -1.0, 1.0)
    return JudgedClaim(found.model, found, [found])


def compared(runs: list[RunResult], *claims: JudgedClaim, prices: str | None = None) -> list[str]:
    """The lines, without dates and the folder."""
    lines = compare_plans(runs, claims, prices)
    folder = str(Path(runs[0].path).parent)
    return [re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", "DATE", line).replace(folder, "HERE") for line in lines]


def test_runs_that_the_plan_lists_are_named_if_they_are_missing(tmp_path: Path) -> None:
    runs = plan(tmp_path, "0,1,2,3")
    where = f"HERE/{PLAN}: the analysis of experiment=main "
    assert compared(runs) == [f"{where}equals its plan"]
    lacks = f"{where}differs from its plan: this report lacks "
    assert [run.condition.names[1] for run in runs[4:]] == ["opo"] * 4
    assert compared(runs[4:]) == [f"{lacks}4 runs: babyai react gpt-5.4-mini seed 0, 1, 2, 3"]
    assert compared(runs[3:5]) == [
        f"{lacks}6 runs: babyai opo gpt-5.4-mini seed 1, 2, 3; babyai react gpt-5.4-mini seed 0, 1, 2"
    ]


def test_further_runs_are_added_with_their_date_and_nothing_else_changes(tmp_path: Path) -> None:
    plan(tmp_path, "0,1")
    before = read_yaml((tmp_path / PLAN).read_text())["experiment=main"]
    assert before["levels"] == {"confidence": 0.95, "equivalence": 0.9}
    ((written, own),) = before["runs"].items()
    assert own == {f"babyai {name} gpt-5.4-mini": [0, 1] for name in ("react", "opo")}
    before["runs"] = {"2026": own}
    (tmp_path / PLAN).write_text(write_yaml({"experiment=main": before}))
    runs = plan(tmp_path, "0,1,2")
    after = read_yaml((tmp_path / PLAN).read_text())["experiment=main"]
    added = after["runs"].popitem()
    assert after == before
    assert added[0] >= written
    assert added[1] == {name: [2] for name in own}
    assert compared(runs)[0].endswith("equals its plan")
    other = replace(summary("babyai", "asi"), path=str(tmp_path / "x"))
    assert compared([*runs, other])[1:] == [f"HERE/{PLAN} does not plan 1 run: babyai asi tiny-random seed 0"]


def started(runs: list[RunResult], times: dict[int, float]) -> list[RunResult]:
    """The runs, started at these times by their seeds."""
    process: dict[int, Any] = {seed: SimpleNamespace(started=time) for seed, time in times.items()}
    return [replace(run, processes=[process[run.seed]]) for run in runs]


def test_runs_that_a_sweep_added_after_others_had_started_are_flagged(tmp_path: Path) -> None:
    plan(tmp_path, "0")
    plan(tmp_path, "5", name="models")  # another experiment in the same folder is no extension
    text = (tmp_path / PLAN).read_text()
    (tmp_path / PLAN).write_text(re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", "2026-01-01 00:00 UTC", text))
    runs = plan(tmp_path, "0,1")
    line = compared(started(runs, {0: 1767225600.0 + 3600, 1: 2.0**36}))[0]
    assert (
        "; 2 runs: babyai opo gpt-5.4-mini seed 1; babyai react gpt-5.4-mini seed 1 were added after" in line
    )
    assert "were added" not in compared(started(runs, dict.fromkeys((0, 1), 2.0**36)))[0]


def test_sweeps_that_start_at_the_same_time_all_add_their_runs(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as sweeps:
        list(sweeps.map(lambda seed: plan(tmp_path, str(seed)), range(8)))
    (written,) = read_yaml((tmp_path / PLAN).read_text()).values()
    added = [seed for own in written["runs"].values() for seed in own["babyai react gpt-5.4-mini"]]
    assert sorted(added) == [*range(8)]
    assert [file.name for file in tmp_path.iterdir()] == [PLAN]


def test_runs_that_started_before_a_sweep_planned_them_are_named(tmp_path: Path) -> None:
    lines = compared(started(plan(tmp_path, "0,1"), {0: 0.0, 1: 2.0**36}))
    told = f"HERE/{PLAN} was written after the start of 2 runs: "
    assert lines[1:] == [told + "; ".join(f"babyai {name} gpt-5.4-mini seed 0" for name in ("opo", "react"))]


def test_another_analysis_and_other_prices_are_named(tmp_path: Path) -> None:
    runs = plan(tmp_path, "0,1")
    content = read_yaml((tmp_path / PLAN).read_text())
    content["experiment=main"]["claims"].pop("babyai-eighth")
    content["experiment=main"]["levels"]["confidence"] = 0.9
    (tmp_path / PLAN).write_text(write_yaml(content))
    (line,) = compared(runs, judged("cost_usd"), prices="zero")
    assert line.endswith("differs from its plan: claims, levels; verdicts on USD are by --prices zero")
    assert "USD" not in "".join(
        [*compared(runs, judged("score"), prices="zero"), *compared(runs, judged("cost_usd"))]
    )


def test_a_deleted_plan_is_named(tmp_path: Path) -> None:
    runs = plan(tmp_path, "0,1")
    (tmp_path / PLAN).unlink()
    assert compared(runs) == []
    reason = "nothing shows that claims and seeds were fixed before the runs"
    assert compared(runs, judged("score")) == [f"no analysis plan ({PLAN}) in HERE: {reason}"]


@pytest.mark.parametrize("text", ["- 1", "a: 1", "", "{", "a: {claims: {}, levels: {}}"])
def test_a_bad_plan_is_left_out_and_the_others_are_compared(tmp_path: Path, text: str) -> None:
    runs = plan(tmp_path / "good", "0")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / PLAN).write_text(text)
    bad = replace(summary(), path=str(tmp_path / "bad" / "run"))
    lines = compare_plans([bad, *runs], [], None)
    advice = "is not a plan as sweeps write it now: restore it, or move it away"
    assert lines[0] == f"the analysis plan is left out: {tmp_path}/bad/{PLAN} {advice}"
    assert "equals its plan" in lines[1]
    (tmp_path / "bad" / PLAN).unlink()
    (tmp_path / "bad" / PLAN).symlink_to("/dev/zero")
    assert "could not be read: it is not a regular file" in compare_plans([bad], [], None)[0]
