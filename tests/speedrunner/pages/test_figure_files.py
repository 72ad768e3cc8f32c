"""Each kind of panel is drawn, into files of the right width, and the same each time."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from speedrunner.pages.figure_files import draw
from speedrunner.pages.figures import Figure, Panel, Series
from speedrunner.results.means import Spread
from tests.speedrunner.pages.test_camera_ready import BARS, ODD, experiment


def spreads(*means: float) -> list[Spread]:
    return [Spread(mean, 0.1, 2) for mean in means]


STACK = Panel(
    ODD,
    "",
    "tokens",
    [Series(name, [ODD, "asi"], spreads(2e6, 1e6)) for name in ("cached", "output")],
    kind="stack",
)
POINTS = Panel(
    "BabyAI",
    "USD per episode",
    "score",
    [Series("react", [0.0001], spreads(0.2)), Series("asi", [0.0002], spreads(0.3))],
    kind="points",
    frontier=["react", "asi"],
)
CURVES = Panel(
    "BabyAI",
    "training rollouts",
    "score",
    [
        Series("opo", [0, 50], [Spread(0.2, None, 1)] * 2, [(0.1, 0.3), None]),
        Series("asi", [0], spreads(1e300)),
    ],
)


def figure(*rows: list[Panel]) -> Figure:
    return Figure("some", "A figure", "", [*rows], [])


@pytest.mark.parametrize(
    ("panel", "shown"),
    [
        (CURVES, {"opo", "asi", "BabyAI", "score", "training rollouts", "40"}),
        (POINTS, {"react", "asi", "BabyAI", "score", "USD per episode", "0.0002"}),
        (BARS, {"react", "0x", "1x", "score", "zombies"}),
        (STACK, {"cached", "output", "asi", "tokens", "1M"}),
    ],
)
def test_a_panel_has_names_of_series_axes_and_numbers(panel: Panel, shown: set[str]) -> None:
    root = ElementTree.fromstring(draw(figure([panel]))["figures/some.svg"])
    texts = {"".join(each.itertext()) for each in root.iter() if each.tag.endswith("}text")}
    assert shown <= texts


def test_files_have_the_width_of_a_column_or_of_two_and_embed_their_fonts() -> None:
    files = draw(experiment("Crafter", "BabyAI"))
    assert {*files} == {
        *(f"figures/main_model.{kind}" for kind in ("pdf", "svg", "png")),
        *(f"paper/main_model.{kind}" for kind in ("pdf", "tex")),
    }
    for path, width in (("figures/main_model.pdf", 7.0), ("paper/main_model.pdf", 3.25)):
        (found,) = re.findall(rb"/MediaBox \[ 0 0 (\S+) ", files[path])
        assert float(found) == width * 72
        assert b"/FontFile2" in files[path]
    assert {path.partition("/")[0] for path in draw(figure([CURVES]))} == {"figures"}


def test_the_same_figure_gives_the_same_files() -> None:
    ragged = figure([CURVES, POINTS], [STACK])
    assert draw(ragged) == draw(ragged)
