"""Tables as CSV and LaTeX: what is read back is what was written, and nothing in it is carried out."""

from __future__ import annotations

import csv
import io
import re

import pytest

from speedrunner.results.writing import Cell, Table, csv_text, latex, latex_text, table_files

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


@pytest.mark.parametrize("name", ["[2pt]", "*"])
def test_no_name_is_an_argument_of_the_row_above(name: str) -> None:
    assert f"\\midrule\n{{{name[0]}}}{name[1:]} & $1$" in latex_text(table((name, 1)))


def test_control_characters_and_lines_stay_in_their_cell() -> None:
    (row,) = read(csv_text(table(("one\ntwo\x1b[31m", 1))))
    assert row["name"] == r"one two\x1b[31m"


def test_latex_takes_every_special_character_for_itself() -> None:
    text = latex(SPECIAL)
    assert re.sub(r"\\[&%$#_{}]|\\text\w+\{\}", "", text).isprintable()
    assert not re.search(r"(?<!\\)[&%$#_]|[~^<>|\"]", re.sub(r"\\text\w+\{\}", "", text))
    assert r"a=b\_c \& 50\% of \#1" in text


@pytest.mark.parametrize(
    ("number", "text"),
    [(0.0, "$0$"), (12, "$12$"), (0.1234, "$0.123$"), (-27.12, "$-27.1$"), (152291.3, "$152291$"),
     (999.4, "$999$"), (999.5, "$1000$"), (0.001, "$0.001$"),
     (0.0000421, r"$4.2\times10^{-5}$"), (None, "--")],
)  # fmt: skip
def test_numbers_have_the_digits_that_one_reads(number: Cell, text: str) -> None:
    assert latex(number) == text


def test_a_short_table_is_one_and_a_long_one_may_be_parted() -> None:
    short, long = (latex_text(table(*(("x", n) for n in range(count)))) for count in (39, 40))
    for text, kind in ((short, "tabular"), (long, "longtable")):
        assert rf"\begin{{{kind}}}{{lr}}" in text
        assert text.index(r"\toprule") < text.index(r"\midrule") < text.index("x & $0$")
        assert r"\caption{What it\_is}\label{tab:some}" in text
        assert text.count(r"\begin{") == text.count(r"\end{")


def test_remarks_end_each_caption() -> None:
    found = table_files([table(("x", 1))], ["tiny: it means_nothing"])
    assert rb"\caption{What it\_is tiny: it means\_nothing.}" in found["tables/some.tex"]
