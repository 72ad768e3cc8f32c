"""The paper's numbers and ours in one table: a row for each number, and the paper's layout for LaTeX."""

from __future__ import annotations

import msgspec

from speedrunner.results.means import Spread
from speedrunner.results.paper import PaperComparison, Published, paper_tables

NUMBER = Published("tab:some", "Section 5", "main", "babyai", "react", "gpt", "score", 0.5, 0.1)
OURS = Spread(0.75, 0.25, 3)


def compared(ours: Spread | None = OURS, flag: str = "", **changes: object) -> PaperComparison:
    number = msgspec.structs.replace(NUMBER, **changes)
    return PaperComparison(number, "tiny", ours, 200, flag, "" if ours else "play it")


def test_each_number_is_a_row_with_its_difference() -> None:
    numbers = [compared(), compared(quantity="output", value=None, sd=None), compared(None, table="fig:more")]
    some, more = paper_tables(numbers)
    first, second, third = (
        dict(zip(table.columns, row, strict=True)) for table in (some, more) for row in table.rows
    )
    assert first == {
        **{"place": "Section 5", "experiment": "main", "env": "babyai", "method": "react"},
        **{"quantity": "score", "paper_model": "gpt", "paper": 0.5, "paper_std": 0.1},
        **{"model": "tiny", "ours": 0.75, "ours_std": 0.25, "seeds": 3, "rollouts": 200},
        **{"difference": 0.25, "flag": "", "missing": ""},
    }
    assert (second["quantity"], second["paper"], second["difference"]) == ("output", None, None)
    assert (third["seeds"], third["ours"], third["difference"]) == (0, None, None)
    assert third["missing"] == "play it"
    assert (some.name, more.name) == ("some", "more")
    assert some.caption.startswith("The paper's tab:some, as PAPER / OURS: ")


def test_the_layout_has_a_line_for_each_method_and_a_column_for_each_quantity() -> None:
    numbers = [
        compared(),
        compared(Spread(0.75, None, 1), quantity="output", value=None),
        compared(None, "long", method="opo"),
    ]
    (table,) = paper_tables(numbers)
    assert table.shown == (
        ["model", "env", "method", "score", "output"],
        [
            ["tiny", "babyai", "react", r"$0.5\pm0.1$ / $0.75\pm0.25$", "-- / $0.75$"],
            ["tiny", "babyai", "opo", r"$0.5\pm0.1$ / --$^\dagger$", "--"],
        ],
    )
