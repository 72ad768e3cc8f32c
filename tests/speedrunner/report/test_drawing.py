"""Drawn panels: numbers at axes, ticks at checkpoints, values that cannot be drawn."""

from __future__ import annotations

import pytest
from matplotlib.figure import Figure as Canvas
from msgspec.structs import replace

from speedrunner.report.drawing import draw_panel, drawing_settings, exact_number, short_numbers
from speedrunner.report.panels import Line, Panel
from tests.speedrunner.report.panel_samples import BARS, POINTS, STACK, curves


@pytest.mark.parametrize(
    ("values", "label", "written"),
    [
        ([0, 0.0001, 0.0002], "USD per episode", ["$0", "$0.0001", "$0.0002"]),
        ([0.0, 0.1, 0.2, 0.30000000000000004], "score", ["0", "0.1", "0.2", "0.3"]),
        ([0, 5000, 10_000], "tokens", ["0", "5k", "10k"]),
        ([0, 500_000, 1_500_000], "tokens", ["0", "0.5M", "1.5M"]),
        ([-0.5, 0], "score", ["-0.5", "0"]),
    ],
)
def test_numbers_of_an_axis_have_one_unit(values: list[float], label: str, written: list[str]) -> None:
    assert short_numbers(values, label) == written


@pytest.mark.parametrize(
    ("value", "label", "written"),
    [
        (0.000212345, "USD per episode", "$0.0002123"),
        (12345.6, "tokens", "12,346"),
        (0.5, "score", "0.5"),
        (1e300, "score", "1e+300"),
    ],
)
def test_a_value_has_four_digits(value: float, label: str, written: str) -> None:
    assert exact_number(value, label) == written


@pytest.mark.parametrize(
    ("checkpoints", "ticks"),
    [
        ([0, 50, 100, 150, 200], [0, 50, 100, 150, 200]),
        ([*range(0, 44, 4)], [0, 8, 16, 24, 32, 40]),
        ([0, 1, 2, 200], [2, 200]),
        ([0], [0]),
    ],
)
def test_ticks_are_at_checkpoints_with_room_between_them(
    checkpoints: list[float | str], ticks: list[int]
) -> None:
    line = Line("react", checkpoints, [0.5] * len(checkpoints), [None] * len(checkpoints), 1)
    axes = Canvas().add_subplot()
    draw_panel(axes, Panel("", "rollouts", "score", [line]))
    assert [*axes.get_xticks()] == ticks


@pytest.mark.parametrize("kind", ["lines", "points", "bars", "stack"])
def test_an_axis_ends_above_all_values_and_shows_those_below_zero(kind: str) -> None:
    x: list[float | str] = [1.0] if kind in ("lines", "points") else ["one"]
    lines = [Line("asi", x, [0.7], [0.2], 2), Line("opo", x, [-0.3], [0.1], 2)]
    axes = Canvas().add_subplot()
    draw_panel(axes, Panel("", "x", "y", lines[: 1 if kind == "stack" else 2], kind=kind))  # type: ignore[arg-type]
    low, high = axes.get_xlim() if kind == "stack" else axes.get_ylim()
    assert low <= (0 if kind == "stack" else -0.3)
    assert high >= (0.7 if kind == "stack" else 0.9)


@pytest.mark.parametrize("panel", [curves("react"), BARS, STACK, POINTS], ids=lambda panel: panel.kind)
def test_what_cannot_be_placed_is_left_out(panel: Panel) -> None:
    (first, *others) = panel.lines
    with drawing_settings({}):
        for value, sd in ((1e308, float("inf")), (float("nan"), None), (0.5, float("inf"))):
            bad = replace(first, y=[value, *first.y[1:]], sd=[sd, *first.sd[1:]])
            canvas = Canvas()
            drawn = draw_panel(canvas.add_subplot(), replace(panel, lines=[bad, *others]))
            canvas.draw_without_rendering()
            marks = sum(map(len, drawn.values.values()))
            lost = not abs(value) < 1
            assert marks == sum(len(line.y) for line in (*panel.lines, *panel.over)) - lost
