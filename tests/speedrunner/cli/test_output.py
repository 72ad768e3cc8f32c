"""Untrusted text on its way to the terminal."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from rich.table import Table

from speedrunner.cli import output
from speedrunner.cli.output import SafeConsole, end_report, say, say_error, say_json, waiting_line
from speedrunner.plain.findings import ok, report

HOSTILE = "\x1b[2J\x9b31m\u202e\r[bold]:smile:"
SHOWN = "\\x1b[2J\\x9b31m\\u202e\\x0d[bold]:smile:"


def test_a_step_is_printed_if_the_last_line_is_old_and_no_one_watches(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for silence, printed in ((0.0, "one\ntwo\n"), (math.inf, "")):
        monkeypatch.setattr(output, "SILENT_S", silence)
        with waiting_line() as show:
            show("one")
            show("two")
        assert capsys.readouterr().err == printed


def print_table(text: str) -> None:
    table = Table(text)
    table.add_row(text)
    SafeConsole().print(table)


@pytest.mark.parametrize(
    "show",
    [
        *(say, say_error, print_table, SafeConsole().say, SafeConsole(stderr=True).say),
        lambda text: say(*ok(text, text).lines()),
        *(lambda text: end_report(report(text, [], [text])), lambda text: say_json({text: text})),
    ],
)
def test_no_way_to_the_terminal_lets_control_characters_through(
    show: Callable[[str], None], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    show(HOSTILE)
    text = "".join(capsys.readouterr())
    assert not any(character in text for character in "\x1b\x9b\u202e\r")
    assert SHOWN in text or "\\u001b[2J\\u009b31m\\u202e\\r[bold]:smile:" in text
