"""Curves over each other."""

from __future__ import annotations

import pytest

from speedrunner.view.curve import Point
from speedrunner.view.overlay import Series, draw_overlay
from tests.page_elements import HOSTILE, Elements

POINTS = [Point(0, 0.2, (0.1, 0.3)), Point(50, 0.6, (0.5, 0.7))]


def test_each_curve_has_its_points_its_band_and_its_name() -> None:
    drawn = draw_overlay("score", [Series("one", POINTS), Series("two", POINTS[:1])])
    found = Elements(drawn)
    assert found.names.count("polygon") == 1, "a band needs two points"
    assert "one: 0.6 (0.5 to 0.7) after 50 rollouts" in found.text
    assert 'aria-label="score over training rollouts. one: 0.2 (0.1 to 0.3) after 0 rollouts' in drawn


def test_curves_of_a_group_share_a_color_and_a_legend_entry() -> None:
    drawn = draw_overlay("score", [Series("a0", POINTS, "a"), Series("a1", POINTS, "a"), Series("b", POINTS)])
    found = Elements(drawn)
    assert [own["class"] for name, own in found.elements if name == "g"] == [
        "series-0",
        "series-0",
        "series-1",
    ]
    assert found.names.count("li") == 2


def test_without_points_there_is_no_figure() -> None:
    assert draw_overlay("score", [Series("one", [])]) == ""


@pytest.mark.parametrize(
    ("values", "labels"),
    [([0.0, 0.9], ["0", "0.5", "1"]), ([30_000.0], ["0", "10k", "20k", "30k"]), ([-0.2, 0.1], ["-0.2", "0"])],
)
def test_the_axis_includes_zero_and_ends_at_a_round_number(values: list[float], labels: list[str]) -> None:
    drawn = draw_overlay("score", [Series("one", [Point(n, value) for n, value in enumerate(values)])])
    for label in labels:
        assert f">{label}</text>" in drawn


def test_a_name_is_text() -> None:
    found = Elements(draw_overlay(HOSTILE, [Series(HOSTILE, POINTS)]))
    assert "script" not in found.names
    assert "img" not in found.names
