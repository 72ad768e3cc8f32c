"""Each skill's history and its row in the table of skills, against numbers worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from serving.tokens.tools import ToolSpec
from speedrunner.results.skill_table import SkillVersion, frame_skills, skill_history
from speedrunner.results.writing import list_rows
from speedrunner.store.policies import InvalidPolicy
from speedrunner.store.records import CallNode
from speedrunner.store.run_data import load
from speedrunner.store.rundir import RunDirectory
from tests.speedrunner.results.small_runs import SmallRun, learnt, skill


class TestHistory:
    def test_each_version_has_the_calls_of_the_episodes_that_were_played_with_it(
        self, tmp_path: Path
    ) -> None:
        learnt(tmp_path / "run")
        history = skill_history(load(tmp_path / "run"))
        assert [calls for episode, calls in history.calls.items() if episode.startswith("train")] == [
            {},
            {},
            {"home": 1, "_step": 1},
            {"home": 1, "_step": 1},
        ]
        home, step, edited = history.versions
        # Two test episodes of 4 actions, and rollouts of 6 and of none, whose call failed.
        assert home == SkillVersion(
            *("home", 1, "written", True, 2, False),
            calls=4, inner_calls=0, errors=1, actions=14, scored=4, score=0.5 + 1 + 1 + 1,
        )  # fmt: skip
        assert step == SkillVersion(
            "_step", 1, "written", False, until=2, removed=True, inner_calls=2, errors=2
        )
        assert edited == SkillVersion("home", 2, "edited", True, calls=2, actions=8, scored=2, score=2.0)

    def test_renames_visibility_and_what_was_there_from_the_start(self, tmp_path: Path) -> None:
        run = SmallRun(tmp_path / "run")
        run.policy(0, {"one": "return walk()", "two": "return look()"})
        run.policy(1, {"one": "return walk()", "three": "return look()"}, {"one": 0, "three": 0})
        history = [(each.name, each.sleep, each.change) for each in skill_history(load(run.path)).versions]
        assert history == [
            ("one", 0, "from the start"),
            ("two", 0, "from the start"),
            ("one", 1, "edited in shared code"),
            ("three", 1, "renamed to"),
        ]

    def test_a_skill_that_becomes_private_or_public_is_changed(self, tmp_path: Path) -> None:
        run = SmallRun(tmp_path / "run")
        for version, private in enumerate(([], ["one"], [])):
            run.policy(version, {"one": "return walk()"}, {"one": 0}, private)
        changes = [(each.change, each.public) for each in skill_history(load(run.path)).versions]
        assert changes == [("from the start", True), ("made private", False), ("made public", True)]

    def test_calls_within_programs_are_other_code_s(self, tmp_path: Path) -> None:
        run = SmallRun(tmp_path / "run")
        run.policy(0, {"one": "return walk()"})
        run.train(0, [CallNode("program", "tool", {}, actions=2, calls=[skill("one", 2)])])
        (one,) = skill_history(load(run.path)).versions
        assert (one.calls, one.inner_calls, one.scored) == (0, 1, 0)

    @pytest.mark.parametrize(
        "end",
        [
            "EpisodeEnded: stopped because the environment has ended the episode",
            "ActionLimitReached: stopped at the limit of 9 actions",
        ],
    )
    def test_a_call_that_the_end_of_the_episode_stopped_did_not_fail(self, tmp_path: Path, end: str) -> None:
        run = SmallRun(tmp_path / "run")
        run.policy(0, {"one": "return two()", "two": "return walk()"})
        stopped = skill("two", 1, end)
        run.train(0, [skill("one", 1, "ValueError: no"), skill("one", 1, stopped.error, stopped)])
        versions = skill_history(load(run.path)).versions
        assert [(each.calls, each.inner_calls, each.errors) for each in versions] == [(2, 0, 1), (0, 1, 0)]

    def test_a_policy_that_was_played_with_and_is_gone(self, tmp_path: Path) -> None:
        run = SmallRun(tmp_path / "run")
        run.policy(0, {})
        run.test(0, 3, [1.0])
        with pytest.raises(InvalidPolicy, match="no policy version 3"):
            skill_history(load(run.path))


def test_a_row_has_life_calls_and_steps_of_all_versions(tmp_path: Path) -> None:
    learnt(tmp_path / "run")
    with RunDirectory.open_for_writing(tmp_path / "run") as directory:
        tools = [ToolSpec("home", "Go.", {"type": "object"}), ToolSpec("walk", "Walk.", {"type": "object"})]
        directory.append_tools({"role": "actor", "policy": "1"}, tools)
    home, step = list_rows(frame_skills(skill_history(load(tmp_path / "run"))))
    assert home == {
        **{"skill": "home", "created": 1, "changed": 2, "removed": None, "public": True},
        **{"calls": 6, "inner_calls": 0, "errors": 1, "actions": 22, "steps_saved": 22 - 6},
        # The prefix grew by 80 tokens; five turns had it. A turn has 120 tokens.
        **{"carried_tokens": 80 * 5, "saved_tokens": 16 * 120},
        "score": (0.5 + 1 + 1 + 1 + 2) / 6,
    }
    assert step == {
        **{"skill": "_step", "created": 1, "changed": 1, "removed": 2, "public": False},
        **{"calls": 0, "inner_calls": 2, "errors": 2, "actions": 0, "steps_saved": 0, "score": None},
        **{"carried_tokens": None, "saved_tokens": 0},
    }
