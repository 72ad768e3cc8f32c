"""Policies evaluated again without prefix cache, beside the runs that learnt them."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from speedrunner.results.conditions import group_runs
from speedrunner.results.run_result import RunResult
from speedrunner.results.tables import cache_table, share_table
from tests.speedrunner.results.summaries import checkpoint, summary


def pair(seed: int, with_cache: dict[str, float], without: dict[str, float]) -> tuple[RunResult, RunResult]:
    """A run of two evaluations, and its last policy on a server without cache."""
    run = summary("babyai", "asi", seed, checkpoint(0, [{}]), checkpoint(50, [with_cache]))
    again = summary("babyai", "asi-from_babyai", seed, checkpoint(0, [without]), model="tiny-random-uncached")
    config = again.config
    model = msgspec.structs.replace(config.model, name="tiny-random", prefix_caching=False)
    start = msgspec.structs.replace(config.run, start_from=run.path, rollouts=0)
    return run, replace(again, config=msgspec.structs.replace(config, model=model, run=start))


def test_each_measure_stands_beside_its_own_without_the_cache_over_the_seeds_that_have_both() -> None:
    runs = [
        *pair(0, {"uncached": 10.0, "cached": 90.0}, {"uncached": 100.0, "cached": 0.0}),
        *pair(1, {"uncached": 30.0, "cached": 70.0}, {"uncached": 100.0, "cached": 0.0}),
        pair(2, {"uncached": 999.0}, {})[0],
    ]
    rows = {row[3]: row for row in cache_table(group_runs(runs)[0]).rows}
    assert rows["uncached"] == (
        "babyai",
        "asi",
        "tiny-random",
        "uncached",
        2,
        20.0,
        100.0,
        pytest.approx(0.2),
    )
    assert rows["cached"][4:] == (2, 80.0, 0.0, None)
    assert set(rows) == {"score", "uncached", "cached", "output", "actor_usd"}


def test_without_such_evaluations_there_is_no_row() -> None:
    assert cache_table(group_runs([pair(0, {}, {})[0]])[0]).rows == []


def test_the_cached_share_is_of_the_last_checkpoint_over_seeds() -> None:
    runs = [
        summary("babyai", "asi", seed, checkpoint(0, [{}]), checkpoint(50, [values]))
        for seed, values in enumerate(
            ({"uncached": 10.0, "cached": 90.0}, {"uncached": 30.0, "cached": 70.0})
        )
    ]
    (row,) = share_table(group_runs(runs)[0]).rows
    assert row == (
        "babyai",
        "asi",
        "tiny-random",
        2,
        80.0,
        20.0,
        pytest.approx(0.8),
        pytest.approx(0.1414, abs=1e-3),
    )
    assert share_table(group_runs([summary()])[0]).rows == []
