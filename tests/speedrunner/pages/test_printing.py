"""Figures for papers: the sizes of columns, embedded fonts, nothing clipped, the same bytes each time."""

from __future__ import annotations

import io
from xml.etree import ElementTree

import pytest
from PIL import Image

from speedrunner.pages.panels import Line, Panel
from speedrunner.pages.printing import DPI, print_figure
from tests.speedrunner.pages.panel_samples import BARS, DOTS, MATRIX, ODD, POINTS, STACK, curves, figure


def printed(kind: str, *panels: Panel) -> bytes:
    """A figure of these panels in one format."""
    found = print_figure(figure(*panels))
    return next(content for name, content in found.items() if name.endswith(f".{kind}"))


@pytest.mark.parametrize(("panels", "inches"), [((curves("react"),), 3.25), ((BARS, POINTS), 7.0)])
def test_a_panel_is_as_wide_as_a_column_and_several_as_the_page(
    panels: tuple[Panel, ...], inches: float
) -> None:
    with Image.open(io.BytesIO(printed("png", *panels))) as image:
        assert image.width == round(inches * DPI)
        assert image.info["dpi"] == pytest.approx((DPI, DPI), abs=0.1)


def test_every_kind_is_drawn_with_its_texts_as_text_whatever_stands_in_them() -> None:
    svg = printed("svg", curves("react", ODD), BARS, STACK, POINTS, DOTS, MATRIX)
    texts = "\n".join(ElementTree.fromstring(svg).itertext())
    for text in ("react", "zombies", "react, combat (%)", "2M", "$x^{ <b>&\\x1b[31m_"):
        assert text in texts


def test_the_same_figure_gives_the_same_bytes() -> None:
    first, second = (print_figure(figure(curves("react"), BARS)) for _ in range(2))
    assert first.keys() == {f"some.{kind}" for kind in ("pdf", "svg", "png")}
    assert first == second


def test_bars_of_several_seeds_keep_their_deviations_beside_one_of_one_seed() -> None:
    def errors(*sd: float | None) -> int:
        bars = Panel("", "", "score", [Line("react", ["0x", "1x"], [0.1, 0.2], [*sd], 1)], kind="bars")
        svg = printed("svg", bars).decode()
        return svg.partition('<g id="LineCollection')[2].partition("</g>")[0].count("<path d=")

    assert [errors(None, None), errors(None, 0.1), errors(0.1, 0.1)] == [0, 1, 2]


def test_a_pdf_embeds_its_fonts_as_outlines_of_truetype() -> None:
    content = printed("pdf", curves("react"), BARS)
    assert b"/Subtype /Type3" not in content
    assert b"/FontFile2" in content


def test_markers_are_not_clipped_at_the_axes() -> None:
    top = Panel("", "rollouts", "score", [Line("react", [0, 50], [0.0, 1.0], [None, None], 1)])
    root = ElementTree.fromstring(printed("svg", top))
    line = next(each for each in root.iter() if each.get("id") == "line0")
    assert [each.tag.rpartition("}")[2] for each in line.iter()].count("use") == 2
    assert not any("clip-path" in each.attrib for each in line.iter())


@pytest.mark.parametrize("count", [1, 5, 9])
def test_a_legend_is_no_wider_than_the_figure(count: int) -> None:
    names = [f"a-method-of-some-length-{n}" for n in range(count)]
    root = ElementTree.fromstring(printed("svg", curves(*names)))
    width = float(root.attrib["width"].removesuffix("pt"))
    legend = next(each for each in root.iter() if each.get("id") == "legend_1")
    starts = [float(each.attrib["x"]) for each in legend.iter() if each.tag.endswith("}text")]
    assert len(starts) == count
    assert all(0 < x < width - 0.45 * 7 * len(names[0]) for x in starts)
