"""Tables of pages and numbers in them."""

from __future__ import annotations

import pytest
from markupsafe import Markup

from speedrunner.pages.tables import Column, html_table, show_cell
from tests.page_elements import HOSTILE, Elements


@pytest.mark.parametrize(
    ("cell", "column", "text"),
    [
        (None, "", "–"),
        (0.000212345, "cost_usd", "$0.0002123"),
        (0.00000012, "cost_usd", "$0.00000012"),
        (12345.6, "tokens", "12,346"),
        (0.5, "score", "0.5"),
        (1e300, "score", "1e+300"),
        (1234, "episodes", "1,234"),
        (Markup("<b>"), "", "<b>"),
    ],
)
def test_a_cell_has_four_digits(cell: object, column: str, text: str) -> None:
    assert show_cell(cell, column) == text


def test_columns_of_numbers_are_aligned_to_the_right_and_texts_stay_texts() -> None:
    columns = [
        "a_name",
        "count",
        Column("share", lambda value: f"{value:.0%}"),
        Column("as text", numbers=True),
    ]
    found = html_table(columns, [(HOSTILE, 1, 0.5, "7"), ("b", None, None, "8")], label=HOSTILE, kind="runs")
    elements = Elements(found)
    assert {"script", "img"}.isdisjoint(elements.names)
    assert '<th scope="col">a name</th><th scope="col" class="number">count</th>' in found
    assert '<td class="number">50%</td><td class="number">7</td>' in found
    assert '<td class="number">–</td><td class="number">–</td>' in found
    assert '<table class="runs">' in found
