"""Drawn panels: numbers at axes, ticks at checkpoints, values that cannot be drawn."""

from __future__ import annotations

import pytest
from matplotlib.figure import Figure as Canvas
from msgspec.structs import replace

from speedrunner.pages.drawing import draw_panel, drawing_settings
from speedrunner.pages.panels import Line, Panel
from tests.speedrunner.pages.panel_samples import BARS, DOTS, MATRIX, POINTS, STACK, curves


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


@pytest.mark.parametrize(
    "panel", [curves("react"), BARS, STACK, POINTS, DOTS, MATRIX], ids=lambda panel: panel.kind
)
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


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "panel", [curves("react"), BARS, STACK, POINTS, DOTS, MATRIX], ids=lambda panel: panel.kind
)
def test_a_panel_without_drawable_values_is_empty(panel: Panel) -> None:
    lines = [replace(line, y=[1e308] * len(line.y)) for line in panel.lines]
    with drawing_settings({}):
        assert draw_panel(Canvas().add_subplot(), replace(panel, lines=lines, over=[])).values == {}


def test_dots_have_an_axis_around_their_intervals_and_zero() -> None:
    axes = Canvas().add_subplot()
    drawn = draw_panel(axes, DOTS)
    low, high = axes.get_xlim()
    assert low <= -5.5 < 1.5 <= high
    assert drawn.values["dot0"][0].endswith(": -5 (-5.5 to -4)")
    assert drawn.values["dot0"][1] == "hidden, open: 2"
    assert [label.get_text() for label in axes.get_yticklabels()][1] == "open"


@pytest.mark.parametrize("values", [[-65.0, -17.0], [17.0, 65.0], [0.0, 0.0]], ids=str)
def test_the_axis_of_dots_reaches_all_values_and_zero(values: list[float]) -> None:
    axes = Canvas().add_subplot()
    draw_panel(axes, replace(DOTS, lines=[replace(DOTS.lines[0], y=values, ends=[None, None])]))
    low, high = axes.get_xlim()
    assert low <= min(0.0, *values) <= max(0.0, *values) <= high
    assert low < high


def test_a_cell_of_a_matrix_has_its_texts_and_a_missing_one_is_empty() -> None:
    axes = Canvas().add_subplot()
    drawn = draw_panel(axes, MATRIX)
    assert drawn.values["cell0_1"] == ["large, large: 1\n40 tokens"]
    assert {*drawn.values} == {"cell0_0", "cell0_1", "cell1_0"}
    opacities = [patch.get_alpha() or 0 for patch in axes.patches]
    assert opacities[0] > opacities[1] > opacities[2] > 0
