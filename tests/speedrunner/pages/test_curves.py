"""Learning curves, one or several in a figure."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from speedrunner.pages.curves import SMALL, Point, Series, plot_curves
from speedrunner.pages.tiles import Form
from tests.page_elements import HOSTILE, Elements

POINTS = [Point(0, 0.2, (0.1, 0.3)), Point(50, 0.6, (0.5, 0.7))]


def alone(points: Sequence[Point], form: Form = "score") -> str:
    return plot_curves("Score", [Series("", points)], form, SMALL)


def test_each_checkpoint_has_a_mark_with_its_value_and_interval() -> None:
    drawn = alone([POINTS[0], Point(50, 1.0)])
    assert drawn.count('class="mark"') == 2
    assert "<title>0.200 (0.100 to 0.300) after 0 rollouts</title>" in drawn
    label = "Score over training rollouts. 0.200 (0.100 to 0.300) after 0 rollouts, 1.000 after 50 rollouts"
    assert f'aria-label="{label}"' in drawn


def test_intervals_are_drawn_as_a_band_or_a_line_if_there_is_one() -> None:
    assert 'polygon points="60.0,94.0 296.0,30.0 296.0,62.0 60.0,126.0"' in alone(POINTS)
    one = alone(POINTS[:1])
    assert "polygon" not in one
    assert '<line x1="60.0" y1="142.0" x2="60.0" y2="14.0"/>' in alone([Point(0, 0.5, (0.0, 1.0))])


def test_each_curve_has_its_points_and_its_name() -> None:
    found = Elements(plot_curves("score", [Series("one", POINTS), Series("two", POINTS[:1])], "score"))
    assert found.names.count("polygon") == 1
    assert "one: 0.600 (0.500 to 0.700) after 50 rollouts" in found.text
    assert "legend" not in alone(POINTS)


def test_curves_of_a_group_share_a_color_and_a_legend_entry() -> None:
    series = [Series("a0", POINTS, "a"), Series("a1", POINTS, "a"), Series("b", POINTS)]
    found = Elements(plot_curves("score", series, "score"))
    kinds = [own["class"] for name, own in found.elements if name == "g"]
    assert [kind for kind in kinds if kind != "mark"] == ["series-0", "series-0", "series-1"]
    assert found.names.count("li") == 2


@pytest.mark.parametrize(
    ("values", "form", "labels"),
    [
        ([0.0, 0.9], "score", ["0", "0.5", "1"]),
        ([30_000.0], "tokens", ["0", "10,000", "30,000"]),
        ([-0.2, 0.1], "score", ["-0.2", "0"]),
        ([0.0], "tokens", ["0", "1"]),
        ([0.0002], "usd", ["$0.0002"]),
        ([0.3], "share", ["0%", "30%"]),
    ],
    ids=str,
)
def test_the_axis_includes_zero_and_ends_at_a_round_number(
    values: list[float], form: Form, labels: list[str]
) -> None:
    drawn = alone([Point(n, value) for n, value in enumerate(values)], form)
    for label in labels:
        assert f">{label}</text>" in drawn


def test_without_points_there_is_no_figure() -> None:
    assert plot_curves("score", [Series("one", [])], "score") == ""


def test_a_name_is_text() -> None:
    found = Elements(plot_curves(HOSTILE, [Series(HOSTILE, POINTS)], "score"))
    assert "script" not in found.names
    assert "img" not in found.names
