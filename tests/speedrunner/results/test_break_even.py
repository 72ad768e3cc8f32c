"""When sleeps are repaid, against numbers worked out by hand and by simulation."""

from __future__ import annotations

from math import isclose

import numpy
import pytest
from pandas import DataFrame

from speedrunner.results.break_even import BreakEven, break_even, break_even_table
from speedrunner.results.conditions import group_runs
from tests.speedrunner.results.summaries import checkpoint, summary


def run(sleeps_usd: float, saved: float, before: float = 1.0) -> DataFrame:
    """The checkpoints of a seed whose sleeps, in two halves of 10 rollouts, cost this much."""
    share = sleeps_usd / 20
    costs = [before, before + share, before - saved + share]
    columns = {"sleep_usd": [0.0, share, share], "cost_usd": costs, "complete": True}
    return DataFrame(columns, index=[0, 10, 20])


def test_sleeps_are_repaid_by_what_the_last_episodes_save() -> None:
    found = break_even([run(3.0, 0.25)])
    assert found is not None
    assert (found.spent, found.saved) == (pytest.approx(3.0), pytest.approx(0.25))
    assert (str(found), found.seeds) == ("12", 1)
    never = break_even([run(3.0, -0.25)])
    assert str(never) == "never"


def test_runs_without_sleeps_prices_or_a_second_checkpoint_have_none() -> None:
    assert break_even([run(0.0, 0.25)]) is None
    assert break_even([run(3.0, 0.25).iloc[:1]]) is None
    assert break_even([run(float("nan"), 0.25)]) is None
    assert break_even([]) is None


def test_a_checkpoint_counts_if_it_is_complete_and_its_cost_is_known() -> None:
    for column, value in (("complete", False), ("cost_usd", float("nan"))):
        points = run(3.0, 0.25, before=2.0)
        points["cost_usd"] = points["cost_usd"].mask(points.index == 10, 1.9)  # saves 0.25, sleeps cost 1.5
        points[column] = points[column].mask(points.index == 20, value)
        found = break_even([points])
        assert found is not None
        assert (found.spent, found.saved) == (pytest.approx(1.5), pytest.approx(0.25))
        both = break_even([points, run(3.0, 0.5)])  # the second one saves nothing until then
        assert both is not None
        assert (both.spent, both.saved, both.seeds) == (pytest.approx(1.5), pytest.approx(0.125), 2)


def test_a_saving_that_could_be_zero_leaves_the_interval_open() -> None:
    found = break_even([run(3.0, 0.3), run(3.1, 0.05), run(2.9, 0.1)])
    assert found is not None
    assert found.low is not None
    assert found.high is None
    assert str(found).startswith("20 (from ")


def test_the_interval_has_the_true_ratio_in_95_percent_of_cases() -> None:
    random, cases = numpy.random.default_rng(0), 400
    inside = 0
    for _ in range(cases):
        found = break_even([run(3 + random.normal(0, 0.3), 0.25 + random.normal(0, 0.05)) for _ in range(5)])
        assert found is not None
        low, high = found.low or 0.0, found.high or float("inf")
        inside += low <= 12 <= high
    assert isclose(inside / cases, 0.95, abs_tol=0.03)


def test_the_table_has_each_cache_rule() -> None:
    points = checkpoint(0, [{"usd": 0.03}]), checkpoint(200, [{"usd": 0.01}], sleep_usd=0.005)
    runs = [summary("babyai", "asi", seed, *points) for seed in range(2)]
    table = break_even_table(group_runs(runs)[0])
    assert [(row[3], row[4], round(row[7] or 0)) for row in table.rows] == [
        (rule, 2, 50) for rule in ("engine", "cold", "provider")
    ]


def test_sleeps_that_save_nothing_are_described_as_never_repaid() -> None:
    texts = [BreakEven(0.5, saved, None, None, None, 1).describe() for saved in (0.0, -0.002004)]
    texts.append(BreakEven(0.5, 0.002, 250.0, None, None, 1).describe())
    assert [text.partition("an episode costs ")[2] for text in texts] == [
        "as much as at the first checkpoint, so they are never repaid.",
        "0.002004 USD more than at the first checkpoint, so they are never repaid.",
        "0.002000 USD less than at the first checkpoint. Test episodes until they are repaid: 250.",
    ]
