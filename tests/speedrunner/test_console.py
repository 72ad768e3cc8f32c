"""Text from outside cannot steer a terminal."""

import json

import pytest

from speedrunner.console import align_columns, describe_seconds, json_text, shorten, visible


def test_control_characters_are_written_out() -> None:
    assert visible("\x1b]0;title\x07\x1b[2J\x9b1m\r\x7f") == r"\x1b]0;title\x07\x1b[2J\x9b1m\x0d\x7f"


def test_what_turns_the_direction_of_writing_is_written_out() -> None:
    assert visible("return a\u202e # b\u2066\u2028\ud800") == r"return a\u202e # b\u2066\u2028\ud800"


def test_what_no_one_sees_is_written_out() -> None:
    assert visible("pay\u200bpal\ufeff\xad\U000e0041") == r"pay\u200bpal\ufeff\xad\U000e0041"


def test_other_text_stays_as_it_is() -> None:
    text = "a\tb\nc é ✓ 日本"
    assert visible(text) == text


def test_the_end_of_a_long_text_is_replaced() -> None:
    assert shorten("a key", 5) == "a key"
    assert shorten("a red key", 8) == "a red..."
    assert shorten("a  red key", 6) == "a..."  # no blank before the dots


@pytest.mark.parametrize(
    ("seconds", "text"), [(5.4, "5 s"), (90, "2 min"), (3600, "60 min"), (7500, "2 h 05 min")]
)
def test_durations_are_short(seconds: float, text: str) -> None:
    assert describe_seconds(seconds) == text


def test_json_has_no_character_that_steers_a_terminal() -> None:
    text = json_text({"a": "\x1b[2J\x9b31m\u202eb\u2028\U000e0041"})
    assert text == r'{"a":"\u001b[2J\u009b31m\u202eb\u2028\udb40\udc41"}'
    assert json.loads(text) == {"a": "\x1b[2J\x9b31m\u202eb\u2028\U000e0041"}


class TestTables:
    ROWS = (
        ("run", "requests", "tokens", "USD"),
        ("react", "1200", "123456789", "0.004000"),
        ("asi", "7", "8", "-"),
    )

    def test_a_table_with_room_has_wide_gaps_and_aligned_numbers(self) -> None:
        assert align_columns(self.ROWS) == align_columns(self.ROWS, 36) == [
            "run    requests     tokens       USD",
            "react      1200  123456789  0.004000",
            "asi           7          8         -",
        ]  # fmt: skip

    def test_the_gaps_become_narrower_before_a_column_is_left_out(self) -> None:
        assert align_columns(self.ROWS, 33)[1] == "react     1200 123456789 0.004000"

    def test_columns_are_left_out_whole_and_named_the_given_ones_first(self) -> None:
        assert align_columns(self.ROWS, 24, ["requests"]) == [
            "run      tokens      USD",
            "react 123456789 0.004000",
            "asi           8        -",
            "(24 columns have no room for: requests)",
        ]
        assert align_columns(self.ROWS, 15, ["tokens"]) == [
            "run   requests",
            "react     1200",
            "asi          7",
            "(15 columns have no room for: tokens, USD)",
        ]

    def test_headings_of_two_lines_are_named_in_one(self) -> None:
        rows = [("roll-\nouts", "LLM\ncalls", "USD"), ("10", "1200.5", "0.004000")]
        assert align_columns(rows, left=0) == [
            "roll-     LLM",
            " outs   calls       USD",
            "   10  1200.5  0.004000",
        ]
        assert (
            align_columns(rows, 15, ["LLM calls"], left=0)[-1] == "(15 columns have no room for: LLM calls)"
        )

    def test_a_long_name_gets_a_line_of_its_own(self) -> None:
        rows = [("run", "score"), ("runs/experiment/seed1", "0.250"), ("", "0.500")]
        assert align_columns(rows, 24) == [
            "run",
            "  score",
            "runs/experiment/seed1",
            "  0.250",
            "  0.500",
        ]

    def test_digits_survive_the_narrowest_terminal(self) -> None:
        lines = align_columns([("", "tokens"), ("react", "123456789012")], 5)
        assert "  123456789012" in lines

    def test_several_columns_can_be_aligned_left(self) -> None:
        assert align_columns([("a", "bb"), ("c", "d")], left=2) == ["a  bb", "c  d"]

    def test_notes_follow_their_rows_if_every_one_fits(self) -> None:
        rows = [("run", "score"), ("a", "0.250"), ("b", "1.000")]
        notes = ["one ended by an error", ""]
        assert align_columns(rows, 40, notes=notes) == [
            "run  score",
            "a    0.250  one ended by an error",
            "b    1.000",
        ]
        assert align_columns(rows, 30, notes=notes) == [
            "run  score",
            "a    0.250",
            "    one ended by an error",
            "b    1.000",
        ]
