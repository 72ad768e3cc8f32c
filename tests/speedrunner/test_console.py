"""Text from outside cannot steer a terminal."""

from speedrunner.console import visible


def test_control_characters_are_written_out() -> None:
    assert visible("\x1b]0;title\x07\x1b[2J\x9b1m\r\x7f") == r"\x1b]0;title\x07\x1b[2J\x9b1m\x0d\x7f"


def test_what_turns_the_direction_of_writing_is_written_out() -> None:
    assert visible("return a\u202e # b\u2066\u2028\ud800") == r"return a\u202e # b\u2066\u2028\ud800"


def test_other_text_stays_as_it_is() -> None:
    text = "a\tb\nc é ✓ 日本"
    assert visible(text) == text
