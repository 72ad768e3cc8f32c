"""Headline tiles: the last value, the change since the first checkpoint, a sparkline."""

from __future__ import annotations

import pytest

from speedrunner.pages.tiles import Form, make_tile


@pytest.mark.parametrize(
    ("form", "first", "last", "value", "change"),
    [
        ("score", 0.9, 1.0, "1.000", "0.900 before training, +0.100"),
        ("tokens", 1200.0, 300.0, "300", "1,200 before training, −75%"),
        ("usd", 0.0018, 0.0002, "$0.0002", "$0.0018 before training, −89%"),
        ("usd", 0.0, 12.5, "$12.50", "$0 before training, +$12.50"),
        ("share", 0.5, 0.901, "90%", "50% before training, +40 points"),
        ("share", 0.9, 0.901, "90%", "90% before training, unchanged"),
    ],
)
def test_a_tile_compares_the_last_checkpoint_with_the_first(
    form: Form, first: float, last: float, value: str, change: str
) -> None:
    tile = make_tile("measure", [(0, first), (40, last)], form)
    assert (tile.value, tile.change) == (value, change)


def test_one_checkpoint_has_no_change_and_no_sparkline() -> None:
    tile = make_tile("score", [(0, 0.5)], "score")
    assert (tile.value, tile.change, tile.spark) == ("0.500", "", "")


@pytest.mark.parametrize(("form", "reason"), [("usd", "no price is known"), ("score", "not measured")])
def test_a_measure_without_a_value_says_why(form: Form, reason: str) -> None:
    assert make_tile("measure", [], form).change == reason
