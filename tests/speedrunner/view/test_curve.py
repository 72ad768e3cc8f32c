"""Learning curves as small pictures."""

from __future__ import annotations

import pytest

from speedrunner.view.curve import curve


def test_a_point_stands_for_each_checkpoint_with_its_number() -> None:
    drawn = curve("score", [(0, 0.5), (10, 1.0)])
    assert drawn.count("<circle") == 2
    assert "0.5 after 0 rollouts" in drawn
    assert 'aria-label="score over training rollouts: 0.5 after 0, 1 after 10"' in drawn


@pytest.mark.parametrize(
    ("values", "top"),
    [([0.3], "0.3"), ([0.31], "0.4"), ([1.0], "1"), ([322], "400"), ([0.0], "1"), ([1200, 80], "2000")],
    ids=str,
)
def test_the_axis_ends_at_a_round_number(values: list[float], top: str) -> None:
    assert f">{top}</text>" in curve("tokens", [*enumerate(values)])


def test_where_there_is_no_point_there_is_no_picture() -> None:
    assert curve("score", []) == ""
