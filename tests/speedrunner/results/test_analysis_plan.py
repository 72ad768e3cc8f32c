"""The analysis that a sweep fixes, and reports that keep to it or not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from serving.plain_yaml import read_yaml, write_yaml
from speedrunner.config.schema import InvalidConfig
from speedrunner.results.analysis_plan import FILE, compare_plans, write_plan
from tests.speedrunner.results.summaries import summary


def test_a_plan_is_kept_and_compared_with_the_analysis(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "paper"
    write_plan(folder, "experiment=zombies", [1, 0, 0])
    write_plan(folder, "experiment=zombies", [5])  # too late
    runs = [replace(summary(seed=seed), path=str(folder / str(seed))) for seed in (0, 1)]
    where = f"{folder / FILE}: the analysis of experiment=zombies "
    assert compare_plans(runs) == [f"{where}equals its plan"]
    assert compare_plans(runs[:1]) == [f"{where}differs from its plan in seeds [0] instead of [0, 1]"]
    plan = read_yaml((folder / FILE).read_text())
    assert isinstance(plan, dict)
    claims = plan["experiment=zombies"]["claims"]
    assert "score of crafter speedrunner minus crafter react is above 0" in claims["zombies-ours"]
    claims.pop("zombies-ours")
    (folder / FILE).write_text(write_yaml(plan))
    assert compare_plans(runs) == [f"{where}differs from its plan in claims"]
    assert compare_plans([summary()]) == []
    (folder / FILE).write_text("a: {claims: {b: []}, measures: [c], exclusions: [], seeds: [4]}")
    (line,) = compare_plans(runs)
    assert line.endswith(
        "of a differs from its plan in claims, measures, exclusions, seeds [0, 1] instead of [4]"
    )


@pytest.mark.parametrize(
    "text", ["- 1", "a: 1", "a: {claims: {}}", "3: {claims: {}, measures: [], exclusions: [], seeds: 4}"]
)
def test_a_file_that_is_no_plan_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(InvalidConfig, match=r"analysis\.yaml is not the plan"):
        compare_plans([replace(summary(), path=str(tmp_path / "run"))])
