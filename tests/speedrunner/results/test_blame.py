"""The history of skills as text."""

from __future__ import annotations

from pathlib import Path

from speedrunner.results.blame import blame_lines
from speedrunner.store.run_data import load
from tests.speedrunner.results.small_runs import SmallRun, learnt, skill


def test_each_skill_has_its_versions_and_savings(tmp_path: Path) -> None:
    learnt(tmp_path / "run")
    # Test task 1 took one LLM call of 20 output tokens with and without `home`, and task 0 likewise.
    assert list(blame_lines(load(tmp_path / "run"))) == [
        "home (public)",
        "  written in sleep 1, after train/0000 to train/0001: called 4 times by the actor, 0 by other"
        " code, 1 failed, 3.5 actions a call, score 0.875 in 4 episodes",
        "  edited in sleep 2, after train/0002 to train/0003: called 2 times by the actor, 0 by other"
        " code, 0 failed, 4.0 actions a call, score 1.000 in 2 episodes",
        "  saved per episode, 2 tasks: LLM calls 0.0 (0.0 to 0.0), output tokens 0 (0 to 0),"
        " USD 0.000000 (0.000000 to 0.000000), score +0.625 (-0.963 to +2.213)",
        "_step (private)",
        "  written in sleep 1, after train/0000 to train/0001: called 0 times by the actor, 2 by other"
        " code, 2 failed",
        "  removed in sleep 2, after train/0002 to train/0003",
        "  saved: no estimate, as no task was played both with and without a call",
    ]


def test_skills_are_sorted_by_a_saved_amount(tmp_path: Path) -> None:
    run = SmallRun(tmp_path / "run")
    run.policy(0, {"never": "pass", "slow": "pass", "quick": "pass"})
    run.test(0, 0, [1.0, 1.0], [None, None, None])
    run.test(2, 0, [1.0, 1.0], [skill("slow"), None])
    run.test(4, 0, [1.0, 1.0], [skill("quick")])

    def order(sort: str | None) -> list[str]:
        lines = blame_lines(load(run.path), sort)  # type: ignore[arg-type]
        return [line.split()[0] for line in lines if not line.startswith(" ")]

    assert order(None) == ["never", "slow", "quick"]
    assert order("llm_calls") == order("output") == ["quick", "slow", "never"]


def test_a_run_without_skills(tmp_path: Path) -> None:
    run = SmallRun(tmp_path / "run")
    run.policy(0, {})
    assert list(blame_lines(load(run.path))) == ["(no sleep has made a skill yet)"]
