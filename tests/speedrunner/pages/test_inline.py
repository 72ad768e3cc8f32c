"""Figures as SVG in the page: equal panels, text as text, values of marks, the page's colours."""

from __future__ import annotations

import re
from collections import Counter

from speedrunner.pages.inline import draw_inline
from tests.page_elements import HOSTILE, Elements
from tests.speedrunner.pages.panel_samples import BARS, DOTS, MATRIX, POINTS, STACK, curves, figure


def drawn(*panels: object) -> Elements:
    """Return the elements of a figure's panels."""
    made = draw_inline(figure(*panels))  # type: ignore[arg-type]
    return Elements("".join(panel.svg for row in made.rows for panel in row))


def titles(*panels: object) -> list[str]:
    """Return the values that marks show."""
    made = draw_inline(figure(*panels))  # type: ignore[arg-type]
    text = "".join(panel.svg for row in made.rows for panel in row)
    return re.findall("<title>(.*?)</title>", text, re.DOTALL)


def test_each_mark_shows_its_value() -> None:
    assert titles(curves("react")) == [
        "react: 0.1 (one seed)\nafter 0 rollouts",
        "react: 0.2 ± 0.1\nafter 50 rollouts",
    ]
    assert titles(POINTS) == [
        "react: 0.2 (one seed)\nat $0.0001 USD per episode",
        "asi: 0.3 ± 0.1\nat $0.0002 USD per episode",
    ]
    assert sorted(titles(BARS)) == [
        "react, 0x: 0.1 (one seed)",
        "react, 1x: 0.2 ± 0.1",
        "react, combat (%), 0x: 10 (one seed)",
        "react, combat (%), 1x: 20 (one seed)",
    ]
    assert "output, asi: 1,000,000 (one seed)" in titles(STACK)


def test_texts_are_text_whatever_they_contain() -> None:
    elements = drawn(curves("react", HOSTILE), STACK)
    assert {*elements.names} <= {
        "svg", "g", "path", "defs", "clippath", "rect", "use", "text", "tspan", "title", "pattern"
    }  # fmt: skip
    assert "$x^{ <b>&\\x1b[31m_" in elements.text
    assert "<img src=x onerror=alert(2)>\\x1b[31m\\u202e{{ 7 * 7 }}" in elements.text


def test_panels_of_a_figure_have_the_same_size() -> None:
    many = curves(*"abcdef")
    wide = curves("a")
    wide.lines[0].y[1] = 123456.0  # long numbers at its axis
    sizes = Counter(panel.svg.partition(">")[0] for panel in draw_inline(figure(many, wide)).rows[0])
    assert len(sizes) == 1


def test_colours_and_fonts_are_the_page_s() -> None:
    made = draw_inline(figure(curves("react"), BARS, STACK, POINTS, DOTS, MATRIX))
    for svg in (*(panel.svg for panel in made.rows[0]), *(sample for _, sample in made.legend)):
        assert "var(--" in svg
        assert not re.search(r"(?i)[:\"]#[0-9a-f]{3,6}\b|font|<style", svg)


def test_ids_differ_between_drawings_and_lead_within_their_own() -> None:
    made = draw_inline(figure(curves("react", "asi"), curves("react", "asi"), BARS, STACK))
    found: list[str] = []
    for svg in (*(panel.svg for panel in made.rows[0]), *(sample for _, sample in made.legend)):
        elements = Elements(svg)
        assert {*re.findall(r"(?:url\(|href=\")#([^)\"]+)", svg)} == {*elements.ids}
        found += elements.ids
    assert len(found) == len(set(found))


def test_a_legend_names_each_series_once() -> None:
    made = draw_inline(figure(curves("react", "asi"), curves("asi"), BARS))
    assert [name for name, _ in made.legend] == ["react", "asi", "react, combat (%)"]


def test_the_same_figure_gives_the_same_text() -> None:
    first, second = (
        draw_inline(figure(curves("react"), BARS, STACK, POINTS, DOTS, MATRIX)) for _ in range(2)
    )
    assert first == second
