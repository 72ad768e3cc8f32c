"""Text from outside cannot steer a terminal."""

import json

from speedrunner.config.console import align_columns, json_text, shorten, visible
from tests.golden_tables import Golden, table


def test_control_characters_are_written_out() -> None:
    assert visible("\x1b]0;title\x07\x1b[2J\x9b1m\r\x7f") == r"\x1b]0;title\x07\x1b[2J\x9b1m\x0d\x7f"


def test_what_turns_the_direction_of_writing_is_written_out() -> None:
    assert visible("return a\u202e # b\u2066\u2028\ud800") == r"return a\u202e # b\u2066\u2028\ud800"


def test_what_no_one_sees_is_written_out() -> None:
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
LONG = [("run", "score"), ("runs/experiment/seed1", "0.250"), ("", "0.500")]
NOTED = [("run", "score"), ("a", "0.250"), ("b", "1.000")]
NOTES = ["one ended by an error", ""]


def test_tables_fit_the_terminal(golden: Golden) -> None:
    tables = {
        "as wide as it likes": align_columns(ROWS),
        "36 columns, as wide": align_columns(ROWS, 36),
        "33 columns, narrower gaps": align_columns(ROWS, 33),
        "24 columns, without requests first": align_columns(ROWS, 24, ["requests"]),
        "15 columns, without tokens first": align_columns(ROWS, 15, ["tokens"]),
        "headings of two lines": align_columns(TWO_LINES, left=0),
        "headings of two lines, one left out": align_columns(TWO_LINES, 15, ["LLM calls"], left=0),
        "a long name has a line": align_columns(LONG, 24),
        "5 columns, and all digits": align_columns([("", "tokens"), ("react", "123456789012")], 5),
        "two columns aligned left": align_columns([("a", "bb"), ("c", "d")], left=2),
        "notes that fit": align_columns(NOTED, 40, notes=NOTES),
        "notes that do not fit": align_columns(NOTED, 30, notes=NOTES),
    }
    golden("aligned_columns.txt", table({name: "\n".join(lines) for name, lines in tables.items()}))
