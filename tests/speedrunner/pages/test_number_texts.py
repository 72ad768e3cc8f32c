"""Numbers at axes and in labels."""

from __future__ import annotations

import pytest

from speedrunner.pages.number_texts import exact_number, short_numbers


@pytest.mark.parametrize(
    ("values", "label", "written"),
    [
        ([0, 0.0001, 0.0002], "USD per episode", ["$0", "$0.0001", "$0.0002"]),
        ([0.0, 0.1, 0.2, 0.30000000000000004], "score", ["0", "0.1", "0.2", "0.3"]),
        ([0, 5000, 10_000], "tokens", ["0", "5k", "10k"]),
        ([0, 500_000, 1_500_000], "tokens", ["0", "0.5M", "1.5M"]),
        ([-0.5, 0], "score", ["-0.5", "0"]),
    ],
)
def test_numbers_of_an_axis_have_one_unit(values: list[float], label: str, written: list[str]) -> None:
    assert short_numbers(values, label) == written


@pytest.mark.parametrize(
    ("value", "label", "written"),
    [
        (0.000212345, "USD per episode", "$0.0002123"),
        (12345.6, "tokens", "12,346"),
        (0.5, "score", "0.5"),
        (1e300, "score", "1e+300"),
    ],
)
def test_a_value_has_four_digits(value: float, label: str, written: str) -> None:
    assert exact_number(value, label) == written
