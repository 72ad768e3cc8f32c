"""Parts of the variance over runs that start from one policy, from invented parts."""

from __future__ import annotations

import numpy
import pytest
from msgspec.structs import replace

from speedrunner.config.condition import Choice, Start, Treatment
from speedrunner.results.conditions import group_runs
from speedrunner.results.stability import stability_table
from tests.speedrunner.results.summaries import checkpoint, summary

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
