"""Text from outside cannot steer a terminal."""

import json

from speedrunner.console import json_text, visible


def test_control_characters_are_written_out() -> None:
    assert visible("\x1b]0;title\x07\x1b[2J\x9b1m\r\x7f") == r"\x1b]0;title\x07\x1b[2J\x9b1m\x0d\x7f"


def test_what_turns_the_direction_of_writing_is_written_out() -> None:
    assert visible("return a\u202e # b\u2066\u2028\ud800") == r"return a\u202e # b\u2066\u2028\ud800"


def test_what_no_one_sees_is_written_out() -> None:
    assert visible("pay\u200bpal\ufeff\xad\U000e0041") == r"pay\u200bpal\ufeff\xad\U000e0041"


def test_other_text_stays_as_it_is() -> None:
    text = "a\tb\nc é ✓ 日本"
    assert visible(text) == text


def test_json_has_no_character_that_steers_a_terminal() -> None:
    text = json_text({"a": "\x1b[2J\x9b31m\u202eb\u2028\U000e0041"})
    assert text == r'{"a":"\u001b[2J\u009b31m\u202eb\u2028\udb40\udc41"}'
    assert json.loads(text) == {"a": "\x1b[2J\x9b31m\u202eb\u2028\U000e0041"}
