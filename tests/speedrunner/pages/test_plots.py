"""Curves and sparklines: what is drawn, and that odd names and values do not break a drawing."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from itertools import combinations
from xml.etree import ElementTree

import pytest
from matplotlib.figure import Figure as Canvas

from speedrunner.pages.plots import LOOKS, Curve, choose_looks, draw_curves, draw_spark, start_at_zero
from tests.page_elements import HOSTILE, Elements

NAN = float("nan")


def draw(*curves: Curve, title: str = "Score") -> ElementTree.Element:
    """Return the SVG of the image."""
    image = draw_curves(curves, title=title, x_label="training rollouts", y_label=title)
    ((name, attributes),) = Elements(image).elements
    assert (name, set(attributes)) == ("img", {"class", "alt", "src"})
    head, _, data = str(attributes["src"]).partition(",")
    assert head == "data:image/svg+xml;base64"
    return ElementTree.fromstring(base64.b64decode(data))


def texts(root: ElementTree.Element) -> list[str]:
    return [text for each in root.iter() if each.tag.endswith("}text") and (text := "".join(each.itertext()))]


def test_curves_have_labels_ticks_and_a_legend_that_names_each_once() -> None:
    shown = texts(draw(Curve("one", [0, 50], [0.2, 0.4]), Curve("two", [0], [1]), Curve("one", [0], [0.3])))
    assert {"training rollouts", "Score", "one", "two", "40", "0.5"} <= {*shown}
    assert shown.count("one") == 1
    assert "one" not in texts(draw(Curve("", [0, 50], [0.2, 0.4])))


def test_nothing_is_drawn_without_a_point() -> None:
    assert draw_curves([Curve("one", [], [])], title="", x_label="", y_label="") == ""


@pytest.mark.parametrize(
    "curve",
    [
        Curve(HOSTILE + "\uffff", [0, 1], [0.5, 1.0]),
        Curve("one", [0, 1], [1e308, -1e308], [-1e308, None], [1e308, None]),
        Curve("one", [0], [NAN]),
        Curve("one", [0], [0.0], [None], [None]),
    ],
)
def test_odd_names_and_values_are_drawn(curve: Curve) -> None:
    assert "training rollouts" in texts(draw(curve, title=HOSTILE))


@pytest.mark.parametrize(
    ("values", "ends"),
    [
        ([2.0, 5.0], (0, 5)),
        ([-5.0, -2.0], (-5, 0)),
        ([-1.0, 4.0], (-1, 4)),
        ([0.0, 0.0], (0, 1)),
        ([NAN], (0, 1)),
    ],
)
def test_an_axis_begins_or_ends_at_zero(values: Sequence[float], ends: tuple[float, float]) -> None:
    axes = Canvas().add_subplot()
    axes.plot(values)
    start_at_zero(axes)
    assert axes.get_ylim() == pytest.approx(ends, abs=0.5)


@pytest.mark.parametrize(
    "names",
    [
        ("react", "opo", "asi", "voyager", "speedrunner"),
        ("asi", "asi_replay", "speedrunner"),
        ("speedrunner", *(name for name in LOOKS if name.startswith("speedrunner-"))),
        ("uncached", "cached", "output"),
        ("with prefix cache", "without"),
        ("mine", "yours", "others", "more"),
    ],
)
def test_names_in_one_figure_differ_even_without_colors(names: tuple[str, ...]) -> None:
    for one, other in combinations(choose_looks(names).values(), 2):
        assert one.color != other.color
        assert one.dash != other.dash
        assert one.marker != other.marker
        assert one.hatch != other.hatch


@pytest.mark.parametrize(
    ("values", "top", "line"),
    [
        ([2.0, 1.0, 0.0], 0, "0.0,0.0 40.0,14.0 80.0,28.0"),
        ([1.0, 1.0], 0, "0.0,0.0 80.0,0.0"),
        ([1.0, 1.0], 2, "0.0,14.0 80.0,14.0"),
        ([3.0, 3.0], 2, "0.0,0.0 80.0,0.0"),
        ([0.0, 0.0], 0, "0.0,28.0 80.0,28.0"),
    ],
)
def test_a_sparkline_has_a_zero_baseline_and_may_share_a_scale(
    values: list[float], top: float, line: str
) -> None:
    assert f'points="{line}"' in draw_spark([*enumerate(values)], top)
    assert draw_spark([(0, 1.0)]) == ""
