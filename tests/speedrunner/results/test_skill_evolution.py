"""Skills through renames: their changes, and their calls in each training batch."""

from __future__ import annotations

from pathlib import Path

from speedrunner.results.run_result import read_result
from speedrunner.results.skill_evolution import Change, follow_skills, frame_calls, list_changes
from speedrunner.results.skill_table import skill_history
from speedrunner.store.run_data import load
from tests.speedrunner.results.small_runs import SmallRun, learnt, skill


def test_a_skill_has_its_changes_and_the_calls_of_each_batch_between_them(tmp_path: Path) -> None:
    learnt(tmp_path / "run")
    home, step = follow_skills(skill_history(load(tmp_path / "run")))
    assert list_changes(home, [0, 1]) == [
        Change(1, "written", "home", True, [2]),
        Change(2, "edited", "home", True, []),
    ]
    # Both rollouts of batch 1 called it, from another skill.
    assert list_changes(step, [0, 1]) == [
        Change(1, "written", "_step", False, [2]),
        Change(2, "removed", "_step", None, []),
    ]
    assert (home.calls, step.calls) == (6, 2)


def test_a_renamed_skill_stays_one_skill(tmp_path: Path) -> None:
    run = SmallRun(tmp_path / "run")
    run.policy(0, {"go": "return walk()"})
    run.train(0, [skill("go"), skill("go")])
    run.policy(1, {"walk_far": "return walk()"}, {"walk_far": 0})
    run.train(1, [skill("walk_far")], [skill("walk_far")])
    run.train(1, [skill("walk_far")])
    (found,) = follow_skills(skill_history(load(run.path)))
    assert found.name == "walk_far"
    assert list_changes(found, [0, 1]) == [
        Change(0, "from the start", "go", True, [2]),
        Change(1, "renamed from go", "walk_far", True, [3]),
    ]
    assert frame_calls([found]).to_numpy().tolist() == [["walk_far", 0, 2], ["walk_far", 1, 3]]


def test_a_skill_that_was_removed_and_written_again_shows_both(tmp_path: Path) -> None:
    run = SmallRun(tmp_path / "run")
    for version, sources in enumerate(({"go": "return walk()"}, {}, {"go": "return look()"})):
        run.policy(version, sources)
        run.train(version, [skill("go")] if sources else [None])
    (found,) = follow_skills(skill_history(load(run.path)))
    assert [(each.sleep, each.what, each.calls) for each in list_changes(found, [0, 1, 2])] == [
        (0, "from the start", [1]),
        (1, "removed", []),
        (2, "written", [1]),
    ]


def test_functions_that_were_edited_to_be_about_combat_are_counted_at_each_checkpoint(tmp_path: Path) -> None:
    run = SmallRun(tmp_path / "run")
    run.policy(0, {"gather": "return walk()", "fight": "return hit('zombie')"})
    run.test(0, 0, [0.0, 0.0])
    run.train(0, [None], [None])
    run.sleep(1)
    sources = {"gather": "return hit('zombie') or walk()", "fight": "return hit('zombie')"}
    run.policy(1, sources | {"flee": "return 'zombie'"}, {"gather": 0, "fight": 0})
    run.test(2, 1, [1.0, 1.0])
    assert read_result(run.path, None).checkpoints["edited_combat"].tolist() == [0, 1]
