"""Observed savings of skills, against numbers worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pandas
import pytest

from speedrunner.results import skill_savings as skill_savings_module
from speedrunner.results.inference import Estimate
from speedrunner.results.run_result import read_result
from speedrunner.results.skill_savings import SkillSaving, frame_savings, skill_savings, sort_savings
from speedrunner.results.skill_table import skill_history
from speedrunner.store.run_data import load
from tests.speedrunner.results.small_runs import TURN, TURN_USD, Calls, SmallRun, skill


def savings_of(run: SmallRun) -> dict[str, SkillSaving]:
    data = load(run.path)
    return {each.skill: each for each in skill_savings(data, skill_history(data))}


def of_two(values: list[float]) -> Estimate:
    """The estimate from two tasks. Half their difference is the standard error; 12.706205 is the quantile of
    a table of Student's distribution with one degree of freedom."""
    first, second = values
    mean, reach = (first + second) / 2, 12.706205 * abs(first - second) / 2
    return Estimate(mean, pytest.approx(mean - reach, rel=1e-6), pytest.approx(mean + reach, rel=1e-6), 2)


def small_run(path: Path) -> SmallRun:
    run = SmallRun(path)
    run.policy(0, {})
    run.policy(1, {"home": "return _step()", "_step": "return walk()"})
    return run


def play(run: SmallRun, point: int, *episodes: tuple[float | None, Calls]) -> None:
    """An evaluation: the score of each test task, and what the turns of its episode ran."""
    for number, (score, calls) in enumerate(episodes):
        run._play("test", f"test/{point:04d}/{number:04d}", int(point > 0), point, calls, score)


class TestSavings:
    def test_compare_episodes_of_the_same_task_with_and_without_a_call(self, tmp_path: Path) -> None:
        run = small_run(tmp_path / "run")
        home = skill("home", 3, None, skill("_step", 1))
        play(run, 0, (0.0, [None] * 5), (0.5, [None] * 3))
        play(run, 2, (1.0, [home]), (1.0, [None]))
        play(run, 4, (0.5, [home, None]), (1.0, [home]))
        found = savings_of(run)
        # Task 0: five calls without it, one and two with it; task 1: three and one without, one with it.
        saved, gained = [5 - 1.5, 2 - 1.0], [0.75 - 0.0, 1.0 - 0.75]
        assert found["home"] == SkillSaving(
            skill="home",
            tasks=2,
            episodes_with=3,
            episodes_without=3,
            llm_calls=of_two(saved),
            uncached=of_two([TURN.uncached * each for each in saved]),
            cached=of_two([TURN.cached * each for each in saved]),
            output=of_two([TURN.completion * each for each in saved]),
            usd=found["home"].usd,
            score=of_two(gained),
        )
        assert found["home"].usd is not None
        assert found["home"].usd.mean == pytest.approx(TURN_USD * sum(saved) / 2)
        # `_step` ran in the same episodes, within `home`.
        assert found["_step"].llm_calls == found["home"].llm_calls

    def test_are_unknown_for_a_skill_without_a_comparison(self, tmp_path: Path) -> None:
        run = small_run(tmp_path / "run")
        play(run, 0, (0.0, [None] * 5), (None, [None] * 2))
        play(run, 2, (None, [skill("home")]), (1.0, [skill("home")]))
        assert savings_of(run) == {
            name: SkillSaving(skill=name, tasks=0, llm_calls=None, score=None) for name in ("home", "_step")
        }

    def test_of_one_task_have_no_interval(self, tmp_path: Path) -> None:
        run = small_run(tmp_path / "run")
        play(run, 0, (0.0, [None] * 5))
        play(run, 2, (1.0, [skill("home")]))
        assert savings_of(run)["home"].llm_calls == Estimate(4.0, None, None, 1)

    def test_are_unknown_if_there_is_too_much_to_compare(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = small_run(tmp_path / "run")
        play(run, 0, (0.0, [None] * 5))
        play(run, 2, (1.0, [skill("home")]))
        monkeypatch.setattr(skill_savings_module, "WORK", 1)  # one skill in two episodes of a task
        assert savings_of(run)["home"] == SkillSaving(skill="home")

    def test_of_a_run_that_has_not_started_are_unknown(self, tmp_path: Path) -> None:
        run = small_run(tmp_path / "run")
        (run.path / "processes.jsonl").unlink()  # so it has no prices either
        assert savings_of(run)["home"] == SkillSaving(skill="home")


def test_the_largest_saving_is_first_and_unknown_ones_are_last() -> None:
    def saving(skill: str, mean: float | None) -> SkillSaving:
        return SkillSaving(skill=skill, usd=None if mean is None else Estimate(mean, None, None, 1))

    savings = [saving("unknown", None), saving("loses", -1.0), saving("saves", 1.0)]
    assert [each.skill for each in sort_savings(savings, "usd")] == ["saves", "loses", "unknown"]


def test_the_frame_has_an_empty_cell_for_what_is_unknown(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run")
    play(run, 0, (0.0, [None] * 5))
    play(run, 2, (1.0, [skill("home")]))
    frame = read_result(run.path, None).savings.set_index("skill")
    assert frame.loc["home", ["tasks", "llm_calls", "score"]].tolist() == [1, 4.0, 1.0]
    assert pandas.isna(frame.loc["home", "llm_calls_low"])
    assert frame.loc["_step", "tasks"] == 0
    assert frame.loc["_step", "output":].isna().all()
    assert [*frame_savings([]).columns] == ["skill", *frame.columns]
