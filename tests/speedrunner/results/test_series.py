"""Values over training, averaged over the environments of a column of the paper."""

from __future__ import annotations

import pytest

from speedrunner.results.conditions import FAMILIES, Curve, curve, group_runs, methods, places
from speedrunner.results.means import Spread
from tests.speedrunner.results.summaries import checkpoint, summary


def test_a_curve_averages_means_and_deviations_at_the_common_checkpoints() -> None:
    runs = [
        summary(env, "asi", seed, *(checkpoint(at, [{"score": score + 0.01 * at * seed}]) for at in points))
        for env, score, points in ((FAMILIES[0], 0.2, (0, 10)), (FAMILIES[1], 0.6, (0, 10, 20)))
        for seed in (0, 1)
    ]
    conditions, _ = group_runs(runs)
    paths = [run.path for run in runs]
    found = curve(conditions, FAMILIES, "asi", "tiny-random", "score")
    assert found.points == {
        0: Spread(pytest.approx(0.4), pytest.approx(0.0), 2),
        10: Spread(pytest.approx(0.45), pytest.approx(0.1 / 2**0.5), 2),
    }
    assert (found.last, found.runs) == (found.points[10], paths)
    # Without one of its environments, a column has no curve.
    assert curve(conditions, ("babyai", *FAMILIES), "asi", "tiny-random", "score") == Curve({}, paths)
    assert Curve({}, paths).last is None


def test_columns_are_those_of_the_paper_and_other_environments_that_were_played() -> None:
    conditions, _ = group_runs(
        [summary("maze", "asi"), summary(FAMILIES[1]), summary("crafter", model="m"), summary("babyai")]
    )
    assert list(places(conditions).items()) == [
        ("Crafter", ("crafter",)),
        (FAMILIES[1], FAMILIES[1:]),
        ("BabyAI", ("babyai",)),
        ("maze", ("maze",)),
    ]
    both = [*conditions, *group_runs([summary(FAMILIES[0])])[0]]
    assert places(both)["ScienceWorld"] == FAMILIES
    assert methods(conditions, ("babyai", "maze", "crafter"), "tiny-random") == ["asi", "react"]
    assert methods(conditions, ("babyai",), "m") == []
