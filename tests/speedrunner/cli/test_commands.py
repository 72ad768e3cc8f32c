"""The table of commands."""

from __future__ import annotations

from inspect import getdoc

import pytest

from speedrunner.cli.app import COMMANDS, Command

GROUPS = [
    [command for command in COMMANDS if command.group == words]
    for words in sorted({command.group for command in COMMANDS})
]


@pytest.mark.parametrize(
    "command", [command for command in COMMANDS if command.module], ids=lambda command: command.words
)
def test_the_help_of_a_command_is_the_first_line_of_its_docstring(command: Command) -> None:
    text = getdoc(command.load_function())
    assert text is not None
    assert text.split("\n\n")[0] == command.help
    assert text.split("\n\n")[-1].startswith(("Example: ", "Examples:\n"))
    assert f"speedrunner {command.words}" in text.split("\n\n")[-1]


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group[0].group)
def test_each_line_of_the_list_of_commands_fits_into_80_columns(group: list[Command]) -> None:
    margin = 2 + max(len(command.name) for command in group) + 2 + 2
    too_long = [command.name for command in group if margin + len(command.help) > 80]
    assert too_long == []
    assert all(command.help.endswith(".") for command in group)
