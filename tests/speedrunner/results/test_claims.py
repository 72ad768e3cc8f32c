"""Verdicts on claims: supported, contradicted, undecided, and what is missing."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from speedrunner.config.condition import Choice
from speedrunner.config.grid import grid_of
from speedrunner.config.names import identify_condition
from speedrunner.results.claims import (
    Claim,
    JudgedClaim,
    claim_tables,
    count_verdicts,
    judge_claims,
    list_claims,
    list_other_settings,
    note_left_out,
)
from speedrunner.results.conditions import FAMILIES, group_runs
from speedrunner.results.libraries import LibraryStatistics
from speedrunner.results.means import AVERAGED, MEANS, RULES
from speedrunner.results.run_result import RunResult
from tests.speedrunner.results.summaries import checkpoint, summary

CLAIMS = list_claims()
BY_NAME = {rows[0].claim: rows for rows in CLAIMS}
MODEL = "tiny-random"
MODEL_NAMES = {"gpt-5.4-mini", "gemini-3-flash-preview", "qwen3.5-27b"}


def judge(name: str, runs: Sequence[RunResult]) -> JudgedClaim:
    (found,) = judge_claims([BY_NAME[name]], group_runs(runs)[0])
    return found


def runs_of(
    method: str,
    measure: str,
    seeds: Sequence[Sequence[float]],
    env: str | Choice = "babyai",
    start: float = 40.0,
    model: str = MODEL,
    **more: object,
) -> list[RunResult]:
    """One run for each seed, with these values of the last test episodes."""
    return [
        summary(
            env, method, seed,
            checkpoint(0, [{measure: start}] * len(values)),
            checkpoint(200, [{measure: value} for value in values]),
            model=model, **more,  # type: ignore[arg-type]
        )
        for seed, values in enumerate(seeds)
    ]  # fmt: skip


def near(value: float) -> list[list[float]]:
    """Values of three seeds that play the same three tasks; a seed and a task change 0.1%, and the mean is
    `value`."""
    changes = (-0.001, 0.0, 0.001)
    return [[value + change * abs(value) + own * abs(value) for own in changes] for change in changes]


def libraries(method: str, sizes: Sequence[int], env: str = "crafter") -> list[RunResult]:
    found = []
    for seed, size in enumerate(sizes):
        library = LibraryStatistics(size, size, float(size), size / 100, float(size), 0.5)
        found.append(summary(env, method, seed, checkpoint(200, [{}], library=library)))
    return found


class TestVerdict:
    """Each claim with runs whose answer is known."""

    @pytest.mark.parametrize(
        ("scores", "verdict", "reason"),
        [
            ([[1, 1], [1, 1], [0.98, 1]], "supported", ""),
            ([[0.5, 0.6, 0.5]] * 3, "contradicted", ""),
            ([[1, 1], [1, 0.6], [0.9, 1]], "undecided", "the interval is not wholly inside or outside"),
            ([[1.0] * 30], "undecided", "one seed, and 2 are needed"),
            ([[0.99, 0.99]] * 3, "undecided", "all values are equal, which gives no interval"),
        ],
    )
    def test_is_that_of_the_whole_interval(
        self, scores: list[list[float]], verdict: str, reason: str
    ) -> None:
        found = judge("babyai-near-perfect", runs_of("speedrunner", "score", scores))
        assert (found.verdict, found.deciding.seeds) == (verdict, len(scores))
        assert found.deciding.measured == pytest.approx(
            sum(sum(own) / len(own) for own in scores) / len(scores)
        )
        assert found.deciding.reason.startswith(reason)

    def test_three_seeds_that_agree_by_chance_do_not_decide(self) -> None:
        # The bootstrap's interval is above 0: 0.05 to 0.45. Student's t with two degrees of freedom is not.
        theirs = runs_of("asi", "score", [[0.0] * 30] * 3, FAMILIES[0])
        ours = runs_of("asi_replay", "score", [[0.05] * 30, [0.2] * 30, [0.45] * 30], FAMILIES[0])
        found = judge("replay-score", ours + theirs)
        assert found.verdict == "undecided"
        assert found.deciding.measured == pytest.approx(0.7 / 3)

    def test_of_a_difference_pairs_the_episodes_of_a_seed(self) -> None:
        scores, more = [[0.1 * n for n in range(3)]] * 3, near(0.05)
        better = [[a + b for a, b in zip(*each, strict=True)] for each in zip(scores, more, strict=True)]
        ours = runs_of("asi_replay", "score", better, FAMILIES[0])
        found = judge("replay-score", ours + runs_of("asi", "score", scores, FAMILIES[0]))
        assert found.verdict == "supported"
        assert (found.deciding.low, found.deciding.high) == (
            pytest.approx(0.05, rel=0.01),
            pytest.approx(0.05, rel=0.01),
        )

    def test_of_equal_shares_is_that_of_their_own_interval_in_which_a_task_counts_once(self) -> None:
        found = judge("babyai-near-perfect", runs_of("speedrunner", "score", [[1.0] * 20] * 3))
        assert (found.verdict, found.deciding.high) == ("undecided", 1.0)
        assert found.deciding.low == pytest.approx(0.839, abs=5e-4)  # Wilson's of 20 of 20
        many = judge("babyai-near-perfect", runs_of("speedrunner", "score", [[1.0] * 90] * 3))
        assert many.verdict == "supported"

    @pytest.mark.parametrize(
        ("tokens", "verdict"),
        [((10, 10.5, 11), "supported"), ((30, 31, 30), "contradicted"), ((4, 30, 9), "undecided")],
    )
    def test_of_about_an_eighth(self, tokens: tuple[float, ...], verdict: str) -> None:
        ours = runs_of("speedrunner", "output", [[each] * 2 for each in tokens])
        found = judge("babyai-eighth", [*ours, *runs_of("react", "output", [[84, 84]] * 3)])
        assert found.verdict == verdict
        assert found.deciding.measured == pytest.approx(sum(tokens) / 3 / 84)

    def test_of_scienceworld_averages_its_families(self) -> None:
        runs = [
            run
            for family, score in zip(FAMILIES, (0.2, 0.6), strict=True)
            for method, value in (("speedrunner", score), ("opo", 0.4))
            for run in runs_of(method, "score", near(value), family)
        ]
        found = judge("scienceworld-tie", runs)
        assert (found.verdict, found.deciding.measured) == ("supported", pytest.approx(0.0))
        assert judge("scienceworld-tie", runs[:6]).deciding.reason == (
            "no finished run with the experiment's limits of"
            f" speedrunner on {FAMILIES[1]}, opo on {FAMILIES[1]}"
        )

    def test_of_a_change_compares_the_last_checkpoint_with_the_first(self) -> None:
        grows = runs_of(
            "opo", "output", [[90, 110, 100], [95, 105, 100], [99, 101, 100]], "crafter", start=40
        )
        found = judge("opo-grows", grows)
        assert (found.verdict, found.deciding.measured) == ("supported", pytest.approx(60))
        falls = runs_of("opo", "output", [[9, 11, 10], [9, 10, 10], [9, 9, 10]], "crafter", start=40)
        assert judge("opo-grows", falls).verdict == "contradicted"

    def test_of_libraries_has_one_value_for_each_seed(self) -> None:
        ours, theirs = libraries("speedrunner", [20, 22, 24]), libraries("voyager", [900, 1000, 1100])
        found = judge("voyager-size", ours + theirs)
        assert found.verdict == "supported"
        assert found.deciding.measured == pytest.approx((900 / 20 + 1000 / 22 + 1100 / 24) / 3)
        assert judge("voyager-graph", ours + theirs).verdict == "contradicted"

    def test_needs_prices_for_usd(self) -> None:
        runs = [
            run
            for method in ("speedrunner", "react", "opo", "asi", "voyager")
            for run in runs_of(method, "usd", [[0.0]] * 3, "crafter", start=0.0)
        ]
        found = judge("dominates-in-usd", runs)
        costs = [each for each in found.rows if each.row.comparison.startswith("cost_usd") and each.has_runs]
        assert {each.reason for each in costs} == {
            "all prices are zero: speedrunner report DIR --prices NAME"
        }


class TestSeveralComparisons:
    def scores(self, *values: float) -> list[RunResult]:
        methods = ("react", "opo", "asi", "voyager", "speedrunner")
        return [
            run
            for method, value in zip(methods, values, strict=False)
            for run in runs_of(method, "score", near(value), "crafter")
        ]

    def test_one_that_is_contradicted_contradicts_the_claim_and_explains_it(self) -> None:
        found = judge("crafter-below-30", self.scores(0.1, 0.15, 0.35, 0.14, 0.25))
        assert found.verdict == "contradicted"
        assert found.deciding.row.comparison == "score of crafter asi is below 0.3"

    def test_one_of_usd_is_judged_by_three_cache_rules(self) -> None:
        ours, react = (
            runs_of(name, "usd", near(usd), "crafter") for name, usd in (("speedrunner", 0.1), ("react", 0.2))
        )
        found = judge("dominates-in-usd", ours + react)
        assert [each.row.measure for each in found.rows if each.measured is not None] == [
            "score",
            "cost_usd",
            "cost_usd_cold",
            "cost_usd_provider",
        ]
        assert found.direction == "3 of 4"  # the scores are equal

    def test_one_of_usd_is_contradicted_if_one_cache_rule_contradicts_it(self) -> None:
        ours, react = (
            runs_of(name, "usd", near(usd), "crafter") for name, usd in (("speedrunner", 0.1), ("react", 0.2))
        )
        for run in ours:
            run.episodes["usd_provider"] = 3 * run.episodes["usd"]
        found = judge("dominates-in-usd", ours + react)
        assert found.verdict == "contradicted"
        assert found.deciding.row.measure == "cost_usd_provider"

    def test_a_missing_one_leaves_the_claim_undecided_and_is_named(self) -> None:
        found = judge("crafter-below-30", self.scores(0.1, 0.15, 0.2, 0.14))
        assert (found.verdict, found.direction) == ("undecided", "4 of 4")
        assert (
            found.deciding.reason == "no finished run with the experiment's limits of speedrunner on crafter"
        )

    @pytest.mark.parametrize(
        ("scores", "verdict"),
        [((0.4, 0.4, 0.6), "supported"), ((0.4, 0.6, 0.6), "contradicted"), ((0.4, 0.6, None), "undecided")],
    )
    def test_two_of_three_environments_are_enough_if_the_claim_says_so(
        self, scores: tuple[float | None, ...], verdict: str
    ) -> None:
        runs = []
        for envs, score in zip((("crafter",), FAMILIES, ("babyai",)), scores, strict=True):
            for env in envs if score is not None else ():
                runs += runs_of("speedrunner", "score", near(0.5), env)
                runs += runs_of("speedrunner-no-interpreter", "score", near(score or 0), env)
        assert judge("interpreter-score", runs).verdict == verdict


class TestRuns:
    def test_an_unfinished_seed_does_not_count(self) -> None:
        runs = runs_of("speedrunner", "score", near(0.99))
        runs += [summary("babyai", "speedrunner", 3, checkpoint(150, [{"score": 0.0}]), unfinished=[200])]
        found = judge("babyai-near-perfect", runs)
        assert (found.verdict, found.deciding.seeds) == ("supported", 3)

    def test_a_run_with_too_few_checkpoints_for_one_side_counts_for_neither(self) -> None:
        row = Claim("two", measure="score", relation="difference", a="babyai opo", b="babyai opo second")
        run = summary("babyai", "opo", 0, checkpoint(0, [{"score": 1.0}]))
        ((judged,),) = [each.rows for each in judge_claims([[row]], group_runs([run])[0])]
        assert not judged.has_runs
        assert judged.reason == "no finished run with the experiment's limits of opo on babyai"

    def test_a_run_with_other_limits_or_another_schedule_does_not_count_and_a_note_says_so(self) -> None:
        runs = runs_of("speedrunner", "score", near(0.99))
        short = [
            *runs_of("speedrunner", "score", [[0.0]] * 3, model="b", rollouts=1, max_actions=150),
            *runs_of("speedrunner", "score", [[0.0]] * 3, model="c", test_episodes=3),
        ]
        conditions, _ = group_runs(runs + short)
        verdicts = {
            each.model: each.verdict for each in judge_claims([BY_NAME["babyai-near-perfect"]], conditions)
        }
        assert verdicts == {MODEL: "supported", "b": "undecided", "c": "undecided"}
        assert note_left_out(conditions) == [
            "babyai speedrunner b does not count for the paper's claims: run.rollouts=1, not 200;"
            " run.max_actions=150, not null",
            "babyai speedrunner c does not count for the paper's claims: run.test_episodes=3, not 30",
        ]

    @pytest.mark.parametrize(
        ("setting", "other"),
        [
            ("sandbox.call_actions=5", "sandbox.call_actions=5, not 5000"),
            ("sandbox.call_wall_s=1", "sandbox.call_wall_s=1.0, not 300.0"),
            ("sandbox.memory_mb=64", "sandbox.memory_mb=64, not 1024"),
            ("run.sleep_wall_s=5", "run.sleep_wall_s=5.0, not 14400.0"),
            ("run.reply_chars=100", "run.reply_chars=100, not 4000"),
            ("model.actor.string_tokens=64", "model.actor.string_tokens=64, not null"),
            ("model.inducer.max_calls=9", "model.inducer.max_calls=9, not null"),
            ("model.load_format=dummy", "model.load_format=dummy, not auto"),
            ("model.actor.thinking_tokens=64", None),  # of another condition
            ("run.in_flight=2", None),  # changes no result
            ("sandbox.kind=rlimits", None),
        ],
    )
    def test_a_run_counts_only_with_the_defaults_of_what_changes_results(
        self, setting: str, other: str | None
    ) -> None:
        runs = grid_of(["experiment=main", "model=qwen3.5-27b", "env=babyai", "run.seed=0", setting]).runs()
        assert runs
        assert all(list_other_settings(run.config) == ([other] if other else []) for run in runs)

    def test_evaluations_of_a_stored_policy_need_no_schedule(self) -> None:
        stored = {"start_from": "runs/a", "rollouts": 0, "sleep_every": 1}
        (run,) = runs_of("voyager", "score", [[0.1]], "crafter", **stored)
        assert list_other_settings(run.config) == []

    def test_a_claim_about_one_model_uses_its_runs_alone(self) -> None:
        def calls(model: str, last: float) -> list[RunResult]:
            return runs_of("speedrunner", "llm_calls", near(last), "crafter", start=100.0, model=model)

        runs = calls("gemini-3-flash-preview", 6.0) + calls("qwen", 90.0)
        assert judge("gemini-calls", runs).verdict == "supported"
        none = judge("gemini-calls", calls("qwen", 6.0))
        assert (none.verdict, none.has_runs) == ("undecided", False)

    @pytest.mark.parametrize("name", sorted({rows[0].experiment for rows in CLAIMS}))
    def test_each_experiment_has_the_runs_of_its_claims(self, name: str) -> None:
        runs = grid_of([f"experiment={name}", "model=gpt-5.4-mini"]).runs()
        there = {(found.env, found.treatment) for found in (identify_condition(run.config) for run in runs)}
        for rows in (rows for rows in CLAIMS if rows[0].experiment == name):
            for side in (side for row in rows for pair in row.pairs for side in pair):
                assert (side.env, side.treatment) in there, rows[0].claim
        assert {other for run in runs for other in list_other_settings(run.config)} == set()


class TestTables:
    def test_have_a_row_for_each_claim_and_model(self) -> None:
        runs = runs_of("speedrunner", "score", near(0.99)) + runs_of("react", "score", near(0.7), model="b")
        judged = judge_claims(CLAIMS, group_runs(runs)[0])
        claims, comparisons = claim_tables(judged)
        assert len(claims.rows) == len(judged)
        rows = [dict(zip(claims.columns, row, strict=True)) for row in claims.rows]
        (row,) = (each for each in rows if (each["claim"], each["model"]) == ("babyai-start", "b"))
        assert (row["verdict"], row["measured"], row["low"], row["high"], row["seeds"]) == (
            "supported", pytest.approx(0.7), pytest.approx(0.7, rel=0.01), pytest.approx(0.7, rel=0.01), 3,
        )  # fmt: skip
        (row,) = (each for each in rows if (each["claim"], each["model"]) == ("zombies-ours", "b"))
        assert (row["verdict"], row["has_runs"]) == ("undecided", 0)
        assert row["experiment"] == "zombies"
        assert {row[0] for row in comparisons.rows} < {*BY_NAME}
        counts = count_verdicts(judged)
        assert counts == "2 supported, 0 contradicted, 24 undecided, 87 without runs"


class TestTheFile:
    def test_each_claim_has_its_own_name_and_a_text(self) -> None:
        assert len(BY_NAME) == len(CLAIMS)
        for first, *others in CLAIMS:
            assert all((first.text, first.place, first.experiment))
            assert 0 <= first.needed <= len({row.group for row in (first, *others)})
            assert not any(row.text or row.needed for row in others)

    def test_each_comparison_has_known_measures_a_range_and_a_second_condition_if_it_compares(self) -> None:
        measures = {*MEANS, *AVERAGED, "instability", *LibraryStatistics.__struct_fields__}
        measures |= {f"usd_{rule}" for rule in RULES}
        for each in (row for rows in CLAIMS for row in rows):
            assert each.measure in measures
            assert each.group
            assert (each.relation == "value") == (not each.b)
            assert each.low is not None or each.high is not None
            assert not each.model or each.model in MODEL_NAMES
