"""Tests between methods, and means of performance."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
from msgspec.structs import replace
from pandas import Series
from scipy.stats import ttest_1samp

from speedrunner.config.condition import Choice, Start, Treatment
from speedrunner.results.conditions import BABYAI, OURS, continue_in, group_runs
from speedrunner.results.inference import estimate_mean
from speedrunner.results.run_result import RunResult
from speedrunner.results.tables import make_tables, stability_table
from speedrunner.results.writing import Table
from tests.speedrunner.results.summaries import checkpoint, summary


def tables(*runs: RunResult) -> dict[str, Table]:
    return {each.name: each for each in make_tables(group_runs(runs)[0], "a list")}


def rows(table: Table) -> list[dict[str, Any]]:
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def scores(method: str, seed: int, *values: float, at: int = 200, **more: Any) -> RunResult:
    point = checkpoint(at, [{"score": value} for value in values], **more)
    return summary("babyai", method, seed, checkpoint(0, [{}]), point)


class TestPairs:
    def test_are_of_the_same_seed_and_test_episode(self) -> None:
        ours = [scores("speedrunner", 0, 1.0, 0.5), scores("speedrunner", 1, 1.0, 0.0)]
        theirs = [scores("react", 0, 0.5, 0.5), scores("react", 1, 0.0, 0.25)]
        found = tables(*ours, *theirs, scores("react", 2, 0.0, 0.0))
        row = rows(found["ttests"])[0]
        test = estimate_mean({0: Series([0.5, 0.0]), 1: Series([1.0, -0.25])})
        paper = ttest_1samp([0.5, 0.0, 1.0, -0.25], 0.0)
        assert test is not None
        names = {"env": "babyai", "model": "tiny-random", "metric": "score", "a": "speedrunner", "b": "react"}
        names |= {"checkpoint": 200, "seeds": 2, "pairs": 4}
        assert row == {
            **names, "difference": test.mean, "low": test.low, "high": test.high, "t": test.t, "p": test.p,
            "paper_p": paper.pvalue,
        }  # fmt: skip

    def test_leave_out_evaluations_of_a_library_that_a_run_has_learnt(self) -> None:
        trained, other = scores("speedrunner", 0, 1.0), scores("react", 0, 0.5)
        evaluated = summary(
            "babyai",
            continue_in(BABYAI, OURS),
            0,
            checkpoint(0, [{"score": 0.9}]),
            rollouts=0,
            start_from="a:1",
        )
        found = rows(tables(trained, evaluated, other)["ttests"])
        assert {(row["a"], row["b"]) for row in found} == {("speedrunner", "react")}

    def test_are_of_speedrunner_against_each_other_method_or_else_of_all(self) -> None:
        react, asi, opo = (scores(method, 0, 0.5, 1.0) for method in ("react", "asi", "opo"))

        def pairs(*runs: RunResult) -> list[tuple[str, str]]:
            found = rows(tables(*runs)["ttests"])
            return [(row["a"], row["b"]) for row in found if row["metric"] == "score"]

        assert pairs(react, asi, opo) == [("asi", "opo"), ("asi", "react"), ("opo", "react")]
        ours = scores("speedrunner", 0, 0.5, 1.0)
        assert pairs(react, ours, asi) == [("speedrunner", "asi"), ("speedrunner", "react")]


def test_performance_says_over_how_many_seeds_and_episodes_it_is() -> None:
    found = tables(scores("react", 0, 0.0, 1.0, unscored=1), scores("react", 1, 1.0))["performance"]
    row = rows(found)[1]
    assert (row["checkpoint"], row["seeds"], row["episodes"], row["unscored"]) == (200, 2, 4, 1)
    # The mean of the seeds' means, not of all episodes.
    assert (row["score"], row["score_std"]) == (0.75, pytest.approx(0.125**0.5))


STARTED = Treatment(Choice("speedrunner"), start=Start(Choice("babyai"), seed=0))


def test_the_sleep_has_the_variance_that_the_actor_does_not_explain() -> None:
    random = numpy.random.default_rng(0)
    runs = []
    for seed in range(400):
        one, two, sleep = random.normal(0, (0.03, 0.03, 0.04))
        scores = checkpoint(0, [{"score": 0.5 + one}]), checkpoint(10, [{"score": 0.6 + sleep + two}])
        runs.append(summary("babyai", STARTED, seed, *scores))
    (row,) = stability_table(group_runs(runs)[0]).rows  # the output tokens are all equal
    _, method, _, metric, point, seeds, actor, slept, share, low, high = row
    assert (method, metric, point, seeds) == ("speedrunner-from_babyai-seed0", "score", 10, 400)
    assert (actor, slept) == (pytest.approx(0.03, rel=0.1), pytest.approx(0.04, rel=0.1))
    assert 0 < float(low or 0) < 16 / 25 < float(high or 0) < 1
    assert share == pytest.approx(16 / 25, rel=0.1)


def test_runs_of_policies_of_their_own_have_no_row() -> None:
    start = replace(STARTED, start=Start(Choice("babyai")))
    points = [
        (checkpoint(0, [{"score": seed}]), checkpoint(10, [{"score": seed / 3}])) for seed in (0.1, 0.5)
    ]
    for treatment in (start, "speedrunner"):
        runs = [summary("babyai", treatment, seed, *own) for seed, own in enumerate(points)]
        assert stability_table(group_runs(runs)[0]).rows == []
