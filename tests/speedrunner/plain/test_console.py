"""Text from outside cannot steer a terminal."""

import json

from speedrunner.plain.console import align_columns, count_of, json_text, shorten, visible
from speedrunner.plain.findings import Finding
from tests.golden_tables import Golden, table


def test_what_steers_a_terminal_turns_writing_or_is_invisible_is_written_out() -> None:
    assert visible("\x1b]0;title\x07\x1b[2J\x9b1m\r\x7f") == r"\x1b]0;title\x07\x1b[2J\x9b1m\x0d\x7f"
    assert visible("return a\u202e # b\u2066\u2028\ud800") == r"return a\u202e # b\u2066\u2028\ud800"
    assert visible("pay\u200bpal\ufeff\xad\U000e0041") == r"pay\u200bpal\ufeff\xad\U000e0041"


def test_the_end_of_a_long_text_is_replaced() -> None:
    assert shorten("a key", 5) == "a key"
    assert shorten("a red key", 8) == "a red..."
    assert shorten("a  red key", 6) == "a..."  # no blank before the dots


def test_json_has_no_character_that_steers_a_terminal() -> None:
    text = json_text({"a": "\x1b[2J\x9b31m\u202eb\u2028\U000e0041"})
    assert text == r'{"a":"\u001b[2J\u009b31m\u202eb\u2028\udb40\udc41"}'
    assert json.loads(text) == {"a": "\x1b[2J\x9b31m\u202eb\u2028\U000e0041"}


ROWS = (
    ("run", "requests", "tokens", "USD"),
    ("react", "1200", "123456789", "0.004000"),
    ("asi", "7", "8", "-"),
)
TWO_LINES = [("roll-\nouts", "LLM\ncalls", "USD"), ("10", "1200.5", "0.004000")]
NOTED = [("run", "score"), ("a", "0.250"), ("b", "1.000")]
NOTES = ["one ended by an error", ""]


def test_columns_are_aligned(golden: Golden) -> None:
    tables = {
        "numbers": align_columns(ROWS),
        "one that is wider than a terminal": align_columns([["a column"] * 8, ["1"] * 8]),
        "headings of two lines": align_columns(TWO_LINES, left=0),
        "two columns aligned left": align_columns([("a", "bb"), ("c", "d")], left=2),
        "notes": align_columns(NOTED, notes=NOTES),
    }
    golden("aligned_columns.txt", table({name: "\n".join(lines) for name, lines in tables.items()}))


def test_a_name_that_the_login_cannot_show_keeps_the_columns() -> None:
    head, line = align_columns([("run", "state"), ("\udcc3x", "ready")])
    assert (line, len(head)) == (r"\udcc3x  ready", len(line))


def test_one_thing_has_no_plural() -> None:
    assert [count_of(number, "run") for number in (0, 1, 1_200)] == ["0 runs", "1 run", "1,200 runs"]


def test_the_first_details_are_shown_and_the_others_counted() -> None:
    found = Finding("files", "failed", "2 files\nof episodes", details=["a: is missing"], found=3)
    assert found.lines() == [
        "FAILED       files: 2 files of episodes",
        "             a: is missing",
        "             and 2 more",
    ]
