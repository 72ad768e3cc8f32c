"""Tables of pages and numbers in them."""

from __future__ import annotations

import pytest
from markupsafe import Markup

from speedrunner.pages.html_parts import html_table, show_cell
from tests.page_elements import HOSTILE, Elements


@pytest.mark.parametrize(
    ("cell", "column", "text"),
    [
        (None, "", "–"),
        (0.000212345, "cost_usd", "$0.0002123"),
        (12345.6, "tokens", "12,346"),
        (0.5, "score", "0.5"),
        (1234, "episodes", "1,234"),
        (Markup("<b>"), "", "<b>"),
    ],
)
def test_a_cell_has_four_digits(cell: object, column: str, text: str) -> None:
    assert show_cell(cell, column) == text


def test_columns_of_numbers_are_aligned_to_the_right_and_texts_stay_texts() -> None:
    found = html_table(["a_name", "count"], [(HOSTILE, 1), ("b", None)], label=HOSTILE, kind="runs")
    assert {"script", "img"}.isdisjoint(Elements(found).names)
    assert '<th scope="col" class="text">a name</th><th scope="col" class="number">count</th>' in found
    assert '<td class="number">1</td>' in found
    assert '<td class="number">–</td>' in found
    assert '<table class="runs">' in found
