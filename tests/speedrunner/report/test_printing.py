"""Figures for papers: the sizes of columns, text that stays text, told apart without colours."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import pytest
from PIL import Image

from speedrunner.report.panels import Figure, Line, Panel
from speedrunner.report.printing import DPI, print_figures
from speedrunner.report.styles import style

TOGETHER = (
    ("react", "opo", "asi", "voyager", "speedrunner"),
    ("asi", "asi_replay", "speedrunner"),
    ("speedrunner", "speedrunner-interpreter_off", "speedrunner-prompt_asi_style",
     "speedrunner-visibility_all_public"),
    ("uncached", "cached", "output"),
    ("with prefix cache", "without"),
)  # fmt: skip
"""What stands in one panel."""

ODD = "$x^{ <b>&\x1b[31m_"


def figure(*panels: Panel) -> Figure:
    return Figure("some", "A figure", "", [list(panels)], [], "")


def curves(*names: str) -> Panel:
    return Panel("BabyAI", "rollouts", "score", [Line(n, [0, 50], [0.1, 0.2], [None, 0.1], 1) for n in names])


BARS = Panel(
    "Crafter", "zombies", "score", [Line("react", ["0x", "1x"], [0.1, 0.2], [None, None], 1)],
    kind="bars", over=[Line("react", ["0x", "1x"], [10.0, 20.0], [None, None], 1)], over_y="%",
)  # fmt: skip
STACK = Panel(
    ODD, "tokens", "", [Line("cached", [ODD, "asi"], [2e6, 1e6], [None, None], 1)] * 2, kind="stack"
)
POINTS = Panel(
    "BabyAI", "USD", "score",
    [Line("react", [0.1], [0.2], [None], 1), Line("asi", [0.2], [0.3], [0.1], 2)],
    kind="points", frontier=["react", "asi"],
)  # fmt: skip


@pytest.mark.parametrize(("panels", "inches"), [((curves("react"),), 3.3), ((BARS, POINTS), 7.0)])
def test_a_panel_is_as_wide_as_a_column_and_several_as_the_page(
    tmp_path: Path, panels: tuple[Panel, ...], inches: float
) -> None:
    _, png = print_figures([figure(*panels)], tmp_path)
    with Image.open(png) as image:
        assert image.width == round(inches * DPI)
        assert image.info["dpi"] == pytest.approx((DPI, DPI), abs=0.1)


def test_every_kind_is_drawn_with_its_texts_as_text_whatever_stands_in_them(tmp_path: Path) -> None:
    svg, _ = print_figures([figure(curves("react", ODD), BARS, STACK, POINTS)], tmp_path)
    texts = "\n".join(ElementTree.fromstring(svg.read_text()).itertext())
    for text in ("react", "zombies", "react, combat", "2M", "$x^{ <b>&\\x1b[31m_"):
        assert text in texts


def test_the_same_figure_gives_the_same_bytes(tmp_path: Path) -> None:
    first, second = (
        [path.read_bytes() for path in print_figures([figure(curves("react"), BARS)], tmp_path / name)]
        for name in ("one", "two")
    )
    assert first == second


def test_bars_of_several_seeds_keep_their_deviations_beside_one_of_one_seed(tmp_path: Path) -> None:
    def errors(*sd: float | None) -> int:
        bars = Panel("", "", "score", [Line("react", ["0x", "1x"], [0.1, 0.2], [*sd], 1)], kind="bars")
        svg, _ = print_figures([figure(bars)], tmp_path)
        return svg.read_text().partition('<g id="LineCollection')[2].partition("</g>")[0].count("<path d=")

    assert [errors(None, None), errors(None, 0.1), errors(0.1, 0.1)] == [0, 1, 2]


@pytest.mark.parametrize("names", TOGETHER)
def test_what_stands_together_differs_without_colours(names: tuple[str, ...]) -> None:
    for one, other in combinations(map(style, names), 2):
        assert one.dash != other.dash
        assert one.marker != other.marker
        assert one.hatching != other.hatching
