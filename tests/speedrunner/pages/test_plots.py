"""Each kind of panel is drawn, the same each time, and odd names and values do not break a drawing."""

from __future__ import annotations

import re
from itertools import combinations
from xml.etree import ElementTree

import pytest

from speedrunner.config.condition import Treatment
from speedrunner.pages.plots import (
    LOOKS,
    WIDTH,
    Panel,
    ReportFigure,
    Series,
    choose_looks,
    draw_files,
    show_panel,
)
from speedrunner.results.means import Spread
from tests.page_elements import HOSTILE, Elements


def spreads(*means: float, sd: float | None = 0.1) -> list[Spread]:
    return [Spread(mean, sd, 2) for mean in means]


CURVES = Panel(
    "BabyAI",
    "training rollouts",
    "score",
    [Series("opo", [0, 50], spreads(0.2, 0.4, sd=None)), Series("asi", [0], spreads(1.0))],
)
POINTS = Panel(
    "BabyAI",
    "USD per episode",
    "score",
    [Series("react", [0.0001], spreads(0.2)), Series("asi", [0.0002], spreads(0.3))],
    kind="points",
    frontier=["react", "asi"],
)
HOSTILE_CURVES = Panel(HOSTILE, "", "tokens", [Series(HOSTILE, [0], spreads(200.0))])


def figure(*rows: list[Panel]) -> ReportFigure:
    return ReportFigure("some", "A figure", "", [*rows])


def texts(*rows: list[Panel]) -> list[str]:
    root = ElementTree.fromstring(draw_files(figure(*rows))["figures/some.svg"])
    return ["".join(each.itertext()) for each in root.iter() if each.tag.endswith("}text")]


def test_panels_have_names_of_axes_numbers_and_one_legend() -> None:
    shown = texts([CURVES, POINTS], [CURVES])
    assert {"BabyAI", "score", "training rollouts", "40", "USD per episode", "0.0002"} <= {*shown}
    assert [shown.count(name) for name in ("react", "opo", "asi")] == [1, 1, 1]


def test_each_run_of_a_series_has_its_own_line() -> None:
    means = Series("asi", [0, 50], spreads(0.5, 0.3))
    runs = Series("asi", [0, 50], spreads(0.5, 0.3), runs=[(0.4, 0.3), (0.6, 0.3)])
    lines = [
        draw_files(figure([Panel("", "", "", [one])]))["figures/some.svg"].count(b'id="line2d_')
        for one in (means, runs)
    ]
    assert lines[1] - lines[0] == 2


def test_files_have_one_width_embed_their_fonts_and_are_the_same_each_time() -> None:
    ragged = figure([CURVES, POINTS], [HOSTILE_CURVES])
    files = draw_files(ragged)
    assert {*files} == {"figures/some.pdf", "figures/some.svg"}
    (found,) = re.findall(rb"/MediaBox \[ 0 0 (\S+) ", files["figures/some.pdf"])
    assert float(found) == WIDTH * 72
    assert b"/FontFile2" in files["figures/some.pdf"]
    assert draw_files(ragged) == files


@pytest.mark.parametrize(
    "series",
    [
        Series(HOSTILE, [0, 1], spreads(0.5, 1.0)),
        Series("", [0], spreads(0.0)),
        Series("one", [0], spreads(-1.0)),
    ],
)
def test_odd_names_and_values_are_shown(series: Series) -> None:
    image = show_panel(Panel("", "training rollouts", "", [series]), HOSTILE)
    ((name, attributes),) = Elements(image).elements
    assert (name, set(attributes)) == ("img", {"class", "alt", "src"})
    assert str(attributes["src"]).startswith("data:image/svg+xml;base64,")


def test_nothing_is_shown_without_a_value() -> None:
    assert show_panel(Panel("", "", "", [Series("one", [], [])]), "") == ""


METHODS, SPEEDRUNNERS = [*LOOKS][:8], [*LOOKS][7:]


@pytest.mark.parametrize("treatments", [METHODS, SPEEDRUNNERS, [None] * 4])
def test_names_in_one_figure_differ_even_without_colors(treatments: list[Treatment | None]) -> None:
    series = [Series(f"{number}", [], [], treatment) for number, treatment in enumerate(treatments)]
    for one, other in combinations(choose_looks(series).values(), 2):
        assert one.color != other.color
        assert one.dash != other.dash
        assert one.marker != other.marker
