"""The table of commands."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import import_module
from inspect import getdoc

import pytest

from speedrunner.cli.commands import COMMANDS, Command


def leaves(commands: Iterable[Command], before: str = "") -> Iterator[tuple[str, Command]]:
    """Yield the commands of a group and of its groups, with the words that call each."""
    for each in commands:
        words = f"{before}{each.name}"
        yield from leaves(each.commands, f"{words} ") if each.commands else [(words, each)]


TOP = [each for commands in COMMANDS.values() for each in commands]
ALL = dict(leaves(TOP))
"""Every command that runs something, by its words."""


def test_the_help_shows_at_most_18_commands_under_six_headings() -> None:
    assert len(TOP) == len({each.name for each in TOP}) <= 18
    assert list(COMMANDS) == ["Run", "Look", "Publish", "Cluster", "Extend", "Measure"]


@pytest.mark.parametrize("words", ALL)
def test_the_help_of_a_command_is_the_first_line_of_its_docstring(words: str) -> None:
    command = ALL[words]
    text = getdoc(getattr(import_module(f"speedrunner.cli.{command.module}"), command.function))
    assert text is not None
    assert text.split("\n\n")[0] == command.help
    assert text.split("\n\n")[-1].startswith(("Example: ", "Examples:\n"))
    assert f"speedrunner {words}" in text.split("\n\n")[-1]


@pytest.mark.parametrize("group", [TOP, *(each.commands for each in TOP if each.commands)])
def test_each_line_of_the_list_of_commands_fits_into_80_columns(group: list[Command]) -> None:
    margin = 2 + max(len(each.name) for each in group) + 2 + 2
    assert [each.name for each in group if margin + len(each.help) > 80 or each.help[-1] != "."] == []
