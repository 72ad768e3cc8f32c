from __future__ import annotations

import pytest

from speedrunner.library.ranking import score_bm25

TEXTS = ["collect_wood\nCollect wood from a tree.", "place_table\nPlace a table.", "drink\nDrink."]
"""Seven, five and two words; 14 / 3 on average."""


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        # ln(1 + 2.5 / 1.5) = 0.98083 for a word of one text; twice among 7 words (14 / 3 on average):
        # 2 * 2.5 / (2 + 1.5 * (0.25 + 0.75 * 1.5)) = 1.23077. "some" is in no text.
        ("Collect some WOOD", [2 * 0.98083 * 1.23077, 0, 0]),
        # ln(1 + 1.5 / 2.5) = 0.47000 for "a", once among 7 and among 5 words.
        ("a", [0.47000 * 2.5 / 3.0625, 0.47000 * 2.5 / (1 + 1.5 * (0.25 + 0.75 * 15 / 14)), 0]),
    ],
)
def test_bm25_equals_its_formula(query: str, expected: list[float]) -> None:
    assert score_bm25(query, TEXTS) == pytest.approx(expected, abs=1e-4)
