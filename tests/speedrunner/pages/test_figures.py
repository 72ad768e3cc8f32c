"""Figures as data: what is drawn where, and from which runs."""

from __future__ import annotations

import pytest

from speedrunner.config.condition import ModelVariant
from speedrunner.pages.figures import ModelRuns, figures
from speedrunner.pages.plots import ReportFigure
from speedrunner.results.conditions import ASI, BABYAI, FAMILIES, frontier, group_runs
from speedrunner.results.means import Spread
from speedrunner.results.run_result import RunResult
from tests.speedrunner.results.summaries import checkpoint, summary


def run(env: str, method: str, seed: int = 0, *scores: float, model: str = "tiny-random") -> RunResult:
    """A run with a checkpoint every 50 rollouts."""
    points = [checkpoint(50 * n, [{"score": score}]) for n, score in enumerate(scores)]
    return summary(env, method, seed, *points, model=model)


def drawn(*runs: RunResult) -> dict[str, ReportFigure]:
    groups, _ = group_runs(runs)
    return {figure.name: figure for figure in figures(groups)}


def test_a_line_has_means_and_deviations_over_seeds() -> None:
    found = drawn(run("babyai", "react", 0, 0.2, 0.4), run("babyai", "react", 1, 0.4, 0.8))
    (panel,) = found["combined_performance_tiny_random"].rows[0]
    (line,) = panel.series
    assert (panel.title, line.name, line.x) == ("BabyAI", "react", [0, 50])
    assert line.y == pytest.approx([0.3, 0.6])
    assert line.intervals == [
        pytest.approx((0.1586, 0.4414), abs=1e-3),
        pytest.approx((0.3172, 0.8828), abs=1e-3),
    ]


def test_a_curve_averages_means_and_deviations_at_the_common_checkpoints() -> None:
    runs = [
        summary(env, "asi", seed, *(checkpoint(at, [{"score": score + 0.01 * at * seed}]) for at in points))
        for env, score, points in ((FAMILIES[0], 0.2, (0, 10)), (FAMILIES[1], 0.6, (0, 10, 20)))
        for seed in (0, 1)
    ]
    of_another_model = [run(str(env), "asi", 0, 1.0, model="tiny") for env in (*FAMILIES, BABYAI)]
    conditions, _ = group_runs([*runs, *of_another_model])
    played = ModelRuns(conditions, ModelVariant("tiny-random"))
    assert (played.treatments(FAMILIES), played.treatments([BABYAI])) == ([ASI], [])
    assert played.curve(FAMILIES, ASI, "score") == {
        0: Spread(pytest.approx(0.4), pytest.approx(0.0), 2),
        10: Spread(pytest.approx(0.45), pytest.approx(0.1 / 2**0.5), 2),
    }
    # Without one of its environments, a column has no curve.
    assert played.curve((BABYAI, *FAMILIES), ASI, "score") == {}


def test_scienceworld_is_the_mean_of_its_families_and_one_alone_is_itself() -> None:
    third, fourth = run("scienceworld-family3", "react", 0, 0.2), run("scienceworld-family4", "react", 0, 0.6)
    both = drawn(third, fourth)["combined_performance_tiny_random"].rows[0][0]
    assert (both.title, both.series[0].y) == ("ScienceWorld", [pytest.approx(0.4)])
    alone = drawn(third)["combined_performance_tiny_random"].rows[0][0]
    assert (alone.title, alone.series[0].y) == ("scienceworld-family3", [0.2])


def test_each_treatment_that_was_played_is_drawn_the_methods_first_in_the_order_of_the_paper() -> None:
    others = ("asi_replay", "mine", "mine-option1", "react", "speedrunner-no-interpreter", "voyager")
    found = drawn(*(run("babyai", method, 0, 0.2) for method in others))
    (panel,) = found["combined_performance_tiny_random"].rows[0]
    names = ["react", "voyager", "asi_replay", "mine", "mine-option1", "speedrunner-no-interpreter"]
    assert [line.name for line in panel.series] == names


def test_one_method_has_no_scatter_plot() -> None:
    one, two = run("babyai", "react", 0, 0.2), run("babyai", "speedrunner", 0, 0.4)
    name = "combined_performance_pareto_tiny_random"
    assert name not in drawn(one)
    rows = drawn(one, two, run("crafter", "react", 0, 0.1))[name].rows
    assert [[(panel.title, len(panel.series)) for panel in row] for row in rows] == [[("BabyAI", 2)]] * 2


def test_without_prices_nothing_is_drawn_in_usd() -> None:
    free = summary("babyai", "react", 0, checkpoint(0, [{"usd": 0.0}]))
    found = drawn(free)
    assert {panel.y for (panel,) in found["combined_performance_tiny_random"].rows} == {
        "score",
        "output tokens per episode",
    }


def test_the_frontier_is_what_no_other_beats_in_both() -> None:
    points = {"cheap": (1.0, 0.2), "good": (3.0, 0.9), "worse": (4.0, 0.5), "dear": (9.0, 0.95)}
    assert frontier(points) == ["cheap", "good", "dear"]
    assert frontier({}) == []
