"""Numbers in tables of pages."""

from __future__ import annotations

import pytest
from markupsafe import Markup

from speedrunner.pages.html_parts import show_cell


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
