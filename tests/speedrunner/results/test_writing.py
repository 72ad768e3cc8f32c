"""Tables as CSV: what is read back is what was written, and nothing in it is carried out."""

from __future__ import annotations

import csv
import io

import pytest

from speedrunner.results.writing import Cell, Table, csv_text

SPECIAL = 'a=b_c & 50% of #1 ~ {x} \\ ^ $2 <|> "q"'


def table(*rows: tuple[Cell, ...], **more: object) -> Table:
    return Table("some", "What it_is", ("name", "value"), [*rows], **more)  # type: ignore[arg-type]


def read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_csv_reads_back() -> None:
    found = read(csv_text(table((SPECIAL, 0.1 + 0.2), ("x,y", None), ("n", 7))))
    assert [row["name"] for row in found] == [SPECIAL, "x,y", "n"]
    assert [row["value"] for row in found] == ["0.3", "", "7"]


@pytest.mark.parametrize("formula", ["=1+1", "+1", "-1", "@SUM(A1)", "＝1+1"])
def test_no_text_is_a_formula_but_negative_numbers_stay(formula: str) -> None:
    (row,) = read(csv_text(table((formula, -1.5))))
    assert row == {"name": f"'{formula}", "value": "-1.5"}


def test_control_characters_and_lines_stay_in_their_cell() -> None:
    (row,) = read(csv_text(table(("one\ntwo\x1b[31m", 1))))
    assert row["name"] == r"one two\x1b[31m"
