"""Print the output of commands; the only place where untrusted text becomes safe for a terminal."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import typer
from rich.console import Console
from rich.text import Text

from speedrunner.plain.console import Status, json_text, visible
from speedrunner.plain.findings import Report

SILENT_S = 15.0
"""Maximum seconds without output on a standard error that is not a terminal."""


class SafeConsole(Console):
    """A Rich console that prints each string verbatim, cells of tables included, and escapes control codes.

    Paths and games may contain Rich markup.
    """

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, highlight=False, markup=False, emoji=False)

    def render_str(self, text: str, **options: Any) -> Text:
        """Make every string that Rich draws safe."""
        return super().render_str(visible(text), **options)

    def say(self, line: str) -> None:
        """Print a line without wrapping it."""
        self.print(line, soft_wrap=True)


def say(*lines: str, err: bool = False, end: str = "\n") -> None:
    """Print lines on standard output, or on standard error."""
    for line in lines:
        typer.echo(visible(line) + end, err=err, nl=False)


def say_error(line: str) -> None:
    """Print a line on standard error."""
    say(line, err=True)


def say_json(value: Any) -> None:
    """Print one JSON object."""
    typer.echo(json_text(value))


def end_report(report: Report, *, as_json: bool = False) -> None:
    """Print a report as JSON, or its notes and summary. Exit with status 1 if a check failed."""
    if as_json:
        say_json(report)
    else:
        say(*(f"note: {note}" for note in report.notes), report.summary())
    if not report.passed:
        raise typer.Exit(1)


@contextmanager
def waiting_line() -> Iterator[Status]:
    """Show the current step on standard error: one live line on a terminal, otherwise an occasional line."""
    console = SafeConsole(stderr=True)
    line = console.status("")
    last, is_terminal = time.monotonic(), console.is_terminal

    def show(text: str) -> None:
        nonlocal last
        if is_terminal:
            line.update(Text(visible(text)))
        elif time.monotonic() - last > SILENT_S:
            say_error(text)
            last = time.monotonic()

    with line if is_terminal else nullcontext():  # it runs a thread, which only a terminal needs
        yield show
