"""After how many episodes training has paid off against ReAct, with numbers worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from speedrunner.results.break_even import break_even_table, find_break_even
from speedrunner.results.conditions import group_runs
from speedrunner.results.run_result import RunResult
from tests.speedrunner.results.summaries import checkpoint, summary


class TestTheNumber:
    def test_is_the_first_with_training_and_its_episodes_below_as_many_of_react(self) -> None:
        found = find_break_even({0: 10.0}, {0: [3.0, 3.0]})
        assert found is not None
        # 10 + 3 c is not below 3 (c + 3), but 10 + 4 c is below 4 (c + 3).
        assert (found.break_even, found.low, found.high) == (4, 4, 4)
        assert (found.training, found.saved, found.never, found.result) == (10.0, 3.0, 0.0, "later")

    def test_divides_the_means_over_seeds(self) -> None:
        found = find_break_even({0: 10.0, 1: 50.0}, {0: [1.0, 3.0], 1: [8.0]})
        assert found is not None
        # 30 by the mean of 2 and 8; the seeds alone have 6 and 7.
        assert (found.seeds, found.pairs, found.break_even) == (2, 3, 7)

    def test_is_one_if_nothing_was_spent(self) -> None:
        found = find_break_even({0: 0.0}, {0: [1.0, 2.0]})
        assert found is not None
        assert (found.break_even, found.low, found.high, found.result) == (1, 1, 1, "at once")

    @pytest.mark.parametrize("saved", [[-1.0, -2.0], [0.0, 0.0]])
    def test_does_not_exist_if_an_episode_saves_nothing(self, saved: list[float]) -> None:
        found = find_break_even({0: 0.0}, {0: saved})
        assert found is not None
        assert (found.break_even, found.low, found.high, found.never) == (None, None, None, 1.0)
        assert found.result == "never"


class TestTheInterval:
    def test_spreads_with_seeds_and_their_own_spend(self) -> None:
        found = find_break_even({0: 10.0, 1: 30.0}, {0: [5.0] * 4, 1: [5.0] * 4})
        assert found is not None
        # A resample has seed 0 twice, seed 1 twice, or both.
        assert (found.low, found.break_even, found.high) == (3, 5, 7)

    def test_has_no_upper_end_if_many_resamples_never_break_even(self) -> None:
        found = find_break_even({0: 10.0, 1: 10.0, 2: 10.0}, {0: [9.0] * 5, 1: [6.0] * 5, 2: [-9.0] * 5})
        assert found is not None
        assert (found.break_even, found.high, found.result) == (6, None, "later")
        assert found.low == 2
        # Of 27 draws of three seeds, 7 have the last one twice and save nothing on average.
        assert found.never == pytest.approx(7 / 27, abs=0.02)


def rows(*runs: RunResult) -> list[dict[str, Any]]:
    table = break_even_table(group_runs(runs)[0], "a list")
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def played(method: str, seed: int = 0, usd: float = 0.01, spent: float = 0.0, **more: Any) -> RunResult:
    """A run that spent `spent` on 50 rollouts; each test episode then costs `usd`."""
    amounts = {"usd": spent, "uncached": 0.0, "cached": 0.0, "output": 1000 * spent}
    values = [{"usd": usd, "output": 1000 * usd}] * 2
    points = checkpoint(0, [{}], spent=dict.fromkeys(amounts, 0.0)), checkpoint(50, values, spent=amounts)
    return summary("babyai", method, seed, *points, **more)


def test_each_method_has_a_row_for_usd_and_for_each_class_of_tokens() -> None:
    found = rows(played("react", usd=0.05), played("speedrunner", usd=0.03, spent=0.11))
    assert [row["amount"] for row in found] == ["uncached", "cached", "output", "usd"]
    assert found[3] == {
        "env": "babyai", "method": "speedrunner", "model": "tiny-random", "against": "react",
        "checkpoint": 50, "amount": "usd", "seeds": 1, "pairs": 2, "training": 0.11,
        "saved": pytest.approx(0.02), "break_even": 6, "low": 6, "high": 6, "never": 0.0, "result": "later",
    }  # fmt: skip
    assert (found[2]["break_even"], found[2]["training"]) == (6, pytest.approx(110.0))


def test_what_cannot_be_compared_has_no_row() -> None:
    react = played("react")
    assert rows(react, played("speedrunner", seed=1)) == []  # another seed
    assert rows(played("speedrunner"), played("opo")) == []  # no ReAct
    assert rows(react, played("speedrunner", start_from="runs/other")) == []  # another run paid as well
    first = summary("babyai", "opo", 0, checkpoint(0, [{}], spent={"usd": 0.0}))
    assert rows(react, first) == []  # nothing was learnt yet
