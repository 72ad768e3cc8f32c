"""Each skill's history, and what it cost, against numbers worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from speedrunner.results.ledger import run_costs
from speedrunner.results.pricing import price_book
from speedrunner.results.skill_costs import SkillCost, skill_costs
from speedrunner.results.skill_table import SkillVersion, skill_history
from speedrunner.store.policies import InvalidPolicy, PolicyStore
from speedrunner.store.records import CallNode, Policy, PrefixChange
from speedrunner.store.run_data import load
from tests.speedrunner.results.small_runs import (
    SLEEP_TOKENS,
    SLEEP_USD,
    TURN_USD,
    SmallRun,
    learnt,
    skill,
)


def costs_of(path: Path) -> dict[str, SkillCost]:
    run = load(path)
    (costs,) = run_costs([run], [price_book(run)])
    return {each.skill: each for each in skill_costs(run, costs, skill_history(run))}


class Sleep(int):
    """A sleep's number that counts how often it is compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Sleep.compared += 1
        return int(self) == other

    __hash__ = int.__hash__


class TestHistory:
    def test_a_skill_is_not_compared_with_each_that_vanished(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A run from someone else may rename thousands in each sleep."""
        run = SmallRun(tmp_path / "run")
        for version in (1, 2):
            names = (f"f{version}_{number}" for number in range(100))
            run.policy(version, dict.fromkeys(names, "walk()"), {})
        load_policy = PolicyStore.load

        def load_counted(store: PolicyStore, version: int) -> Policy:
            policy = load_policy(store, version)
            return replace(policy, skills=tuple(replace(each, created=Sleep(0)) for each in policy.skills))

        monkeypatch.setattr(PolicyStore, "load", load_counted)
        assert len(skill_history(load(run.path)).versions) == 200
        assert Sleep.compared < 1_000

    def test_each_version_has_the_calls_of_the_episodes_that_were_played_with_it(
        self, tmp_path: Path
    ) -> None:
        learnt(tmp_path / "run")
        history = skill_history(load(tmp_path / "run"))
        assert [use.saved for use in history.uses] == [{}, {}, {"home": 6 - 1}, {"home": 0 - 1}]
        home, step, edited = history.versions
        # Two test episodes of 4 actions, and rollouts of 6 and of none, whose call failed.
        assert home == SkillVersion(
            *("home", 1, "written", True, 2, False),
            calls=4, inner_calls=0, errors=1, actions=14, episodes=4, scored=4, score=0.5 + 1 + 1 + 1,
        )  # fmt: skip
        assert home.steps_saved == 14 - 4
        assert step == SkillVersion(
            "_step", 1, "written", False, until=2, removed=True, inner_calls=2, errors=2
        )
        assert edited == SkillVersion(
            "home", 2, "edited", True, calls=2, actions=8, episodes=2, scored=2, score=2.0
        )

    def test_renames_visibility_and_what_was_there_from_the_start(self, tmp_path: Path) -> None:
        run = SmallRun(tmp_path / "run")
        run.policy(0, {"one": "return walk()", "two": "return look()"})
        run.policy(1, {"one": "return walk()", "three": "return look()"}, {"one": 0, "three": 0})
        history = [(each.name, each.sleep, each.change) for each in skill_history(load(run.path)).versions]
        assert history == [
            ("one", 0, "from the start"),
            ("two", 0, "from the start"),
            ("one", 1, "edited in shared code"),
            ("three", 1, "renamed from two"),
        ]

    def test_a_skill_that_becomes_private_or_public_is_changed(self, tmp_path: Path) -> None:
        run = SmallRun(tmp_path / "run")
        for version, private in enumerate(([], ["one"], [])):
            run.policy(version, {"one": "return walk()"}, {"one": 0}, private)
        changes = [(each.change, each.public) for each in skill_history(load(run.path)).versions]
        assert changes == [("from the start", True), ("made private", False), ("made public", True)]

    @pytest.mark.parametrize(
        ("body", "name"),
        [
            ("return 2", "short"),
            ("return 2 + 1 + 1", "middle"),
            ("return 2 + 1 + 1 + 1", "middle"),
            ("return 2 + 1 + 1 + 1 + 1 + 1 + 1 + 1", "long"),
        ],
    )
    def test_of_several_skills_that_are_gone_a_new_one_is_the_one_of_most_similar_length(
        self, tmp_path: Path, body: str, name: str
    ) -> None:
        run = SmallRun(tmp_path / "run")
        run.policy(0, {"long": "return" + " + 1" * 7, "middle": "return 1 + 1 + 1", "short": "return 1"})
        run.policy(1, {"other": body}, {"other": 0})
        assert skill_history(load(run.path)).versions[-1].change == f"renamed from {name}"

    def test_calls_within_programs_are_other_code_s(self, tmp_path: Path) -> None:
        run = SmallRun(tmp_path / "run")
        run.policy(0, {"one": "return walk()"})
        run.train(0, [CallNode("program", "tool", {}, actions=2, calls=[skill("one", 2)])])
        (one,) = skill_history(load(run.path)).versions
        assert (one.calls, one.inner_calls, one.episodes) == (0, 1, 0)

    def test_a_call_that_the_end_of_the_episode_stopped_did_not_fail(self, tmp_path: Path) -> None:
        run = SmallRun(tmp_path / "run")
        run.policy(0, {"one": "return two()", "two": "return walk()"})
        stopped = skill("two", 1, "EpisodeEnded: stopped because the environment has ended the episode")
        run.train(0, [skill("one", 1, "ValueError: no"), skill("one", 1, stopped.error, stopped)])
        found = {each.name: (each.total, each.errors) for each in skill_history(load(run.path)).versions}
        assert found == {"one": (2, 1), "two": (1, 0)}

    def test_a_policy_that_was_played_with_and_is_gone(self, tmp_path: Path) -> None:
        run = SmallRun(tmp_path / "run")
        run.policy(0, {})
        run.test(0, 3, [1.0])
        with pytest.raises(InvalidPolicy, match="no policy version 3"):
            skill_history(load(run.path))


class TestCosts:
    def test_a_sleep_is_shared_evenly_by_what_it_wrote_or_changed(self, tmp_path: Path) -> None:
        learnt(tmp_path / "run")
        found = costs_of(tmp_path / "run")
        # The first sleep wrote two skills, the second edited one of them; deleting takes no share.
        assert found["home"].induction_tokens == pytest.approx(SLEEP_TOKENS / 2 + SLEEP_TOKENS)
        assert found["home"].induction_usd == pytest.approx(SLEEP_USD * 1.5)
        assert found["_step"].induction_tokens == pytest.approx(SLEEP_TOKENS / 2)

    def test_a_schema_takes_what_the_prefix_grew_by(self, tmp_path: Path) -> None:
        learnt(tmp_path / "run")
        found = costs_of(tmp_path / "run")
        assert found["home"].schema_tokens == pytest.approx(80)  # the only public skill: 1080 - 1000
        assert found["_step"].schema_tokens is None

    def test_a_schema_s_share_of_the_prefix_is_that_of_its_length(self, tmp_path: Path) -> None:
        run = SmallRun(tmp_path / "run")
        run.policy(0, {"one": "return walk()"})
        run.sleep(1, PrefixChange(before=1000, after=1080, common=900))
        run.policy(1, {"one": "return walk()", "two": "return walk()"}, {"one": 0})
        tokens = {name: each.schema_tokens for name, each in costs_of(run.path).items()}
        assert tokens == {"one": pytest.approx(80), "two": pytest.approx(80)}

    def test_life_calls_and_steps(self, tmp_path: Path) -> None:
        learnt(tmp_path / "run")
        home, step = costs_of(tmp_path / "run").values()
        assert (home.created, home.changed, home.removed, home.public) == (1, 2, None, True)
        assert (home.calls, home.inner_calls, home.errors, home.steps_saved) == (6, 0, 1, 22 - 6)
        assert (step.created, step.removed, step.calls, step.inner_calls, step.errors) == (1, 2, 0, 2, 2)

    @pytest.mark.parametrize(("turns", "episode"), [(1, "train/0003"), (20, None)])
    def test_it_breaks_even_when_steps_saved_are_worth_more_than_it_cost(
        self, tmp_path: Path, turns: int, episode: str | None
    ) -> None:
        run = SmallRun(tmp_path / "run")
        run.policy(0, {})
        run.train(0, [None], [None])
        run.sleep(1, PrefixChange(before=0, after=1000, common=0))
        run.policy(1, {"home": "return walk()"})
        # All calls cost TURN_USD. Each of the two rollouts saves 5 steps, the sleep cost SLEEP_USD, and each
        # turn carries 1000 cached tokens, 1e-4 USD.
        rollout = [skill("home", 6), *[None] * (turns - 1)]
        run.train(1, rollout, rollout)
        assert 5 * TURN_USD < SLEEP_USD + 1e-4
        assert 10 * TURN_USD > SLEEP_USD + 2 * 1e-4
        assert 10 * TURN_USD < SLEEP_USD + 40 * 1e-4
        assert costs_of(run.path)["home"].break_even == episode


class TestBounds:
    def test_where_finding_a_break_even_would_take_long_it_is_not_known(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = SmallRun(tmp_path / "run")
        run.policy(0, {"home": "return walk()"})
        run.train(0, [skill("home", 10)])
        assert costs_of(run.path)["home"].break_even == "train/0000"
        monkeypatch.setattr("speedrunner.results.skill_costs.STEPS", 0)
        assert costs_of(run.path)["home"].break_even is None
