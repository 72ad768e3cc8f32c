"""Figures as Plotly has them."""

from __future__ import annotations

from speedrunner.report.drawing import draw
from speedrunner.report.panels import Figure, Line, Panel


def test_bars_of_several_seeds_keep_their_deviations_beside_one_of_one_seed() -> None:
    line = Line("react", ["0x", "1x"], [0.1, 0.2], [None, 0.1], 1)
    figure = Figure("some", "A figure", "", [[Panel("", "", "score", [line], kind="bars")]], [], "")
    (bars,) = draw(figure).data
    assert bars.error_y.array == ("unknown", 0.1)  # no number: Plotly would draw `None` as 0
