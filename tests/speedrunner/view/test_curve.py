"""Learning curves as small pictures."""

from __future__ import annotations

import pytest

from speedrunner.view.curve import Point, curve


def test_each_checkpoint_has_a_mark_with_its_value_and_interval() -> None:
    drawn = curve("Score", [Point(0, 0.5, (0.25, 0.75)), Point(10, 1.0)], "score")
    assert drawn.count('class="mark"') == 2
    assert "<title>0.500 (0.250 to 0.750) after 0 rollouts</title>" in drawn
    label = "Score over training rollouts: 0.500 (0.250 to 0.750) after 0, 1.000 after 10"
    assert f'aria-label="{label}"' in drawn


def test_intervals_are_drawn_as_a_band() -> None:
    points = [Point(0, 0.5, (0.0, 1.0)), Point(10, 1.0, (0.5, 1.0))]
    assert 'polygon points="56.0,138.0 288.0,75.0 288.0,12.0 56.0,12.0"' in curve("Score", points, "score")
    assert "polygon" not in curve("Score", points[:1], "score")


@pytest.mark.parametrize(
    ("values", "top"), [([30.1], "40"), ([322], "400"), ([0.0], "1"), ([1200, 80], "2,000")], ids=str
)
def test_the_axis_ends_at_a_round_number(values: list[float], top: str) -> None:
    drawn = curve("tokens", [Point(*point) for point in enumerate(values)], "tokens")
    assert f">{top}</text>" in drawn


def test_scores_share_an_axis_up_to_1() -> None:
    assert ">1</text>" in curve("Score", [Point(0, 0.3)], "score")


def test_costs_are_in_dollars() -> None:
    assert ">$0.0002</text>" in curve("USD", [Point(0, 0.0002)], "usd")


def test_without_points_there_is_no_picture() -> None:
    assert curve("Score", [], "score") == ""
