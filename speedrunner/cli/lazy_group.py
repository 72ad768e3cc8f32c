"""A group of commands that imports a command's module only when the command is called."""

from __future__ import annotations

import os
from collections.abc import Iterable
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from speedrunner.cli.commands import MOVED, Command
from speedrunner.cli.output import say_error

PRIVATE = 0o077
"""Umask of commands that share nothing: their files, caches included, are accessible to their user only."""

ANYTHING = {"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": True}


class LazyGroup(TyperGroup):
    """The commands of a table. Its help imports no command, and an old name reports the new one.

    Args:
        table: the commands with their headings, in the order of the help.
        words: the words before a command's name, such as `bench `.
    """

    def __init__(
        self,
        table: Iterable[tuple[str | None, Command]],
        words: str = "",
        **options: Any,
    ) -> None:
        entries = list(table)
        stubs = [TyperCommand(each.name, help=each.help, rich_help_panel=panel) for panel, each in entries]
        super().__init__(commands=stubs, no_args_is_help=True, rich_markup_mode="rich", **options)
        self._table = {each.name: each for _, each in entries}
        self._words = words

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command without its options: enough for the list of commands."""
        old = f"{self._words}{cmd_name}"
        return _refuse_old_name(old, MOVED[old]) if old in MOVED else super().get_command(ctx, cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the loaded command that the arguments call. Its files are private if they are not shared.

        A group leaves this to its command.
        """
        name, found, rest = super().resolve_command(ctx, args)
        if name not in self._table or not (self._table[name].shares or self._table[name].commands):
            os.umask(PRIVATE)
        return name, load(self._table[name], self._words) if name in self._table else found, rest


def load(command: Command, words: str = "") -> TyperCommand | LazyGroup:
    """Import a command and return it with its options; for a group, only the list of its commands."""
    name = command.name
    if command.commands:
        table = ((None, each) for each in command.commands)
        return LazyGroup(table, f"{words}{name} ", name=name, help=command.help)
    module, _, function = (command.target or f"{name}_command:{name}").partition(":")
    app = typer.Typer(add_completion=False, rich_markup_mode="rich")
    app.command(name)(getattr(import_module(f"speedrunner.cli.{module}"), function))
    found = get_command(app)
    assert isinstance(found, TyperCommand)
    found.help = "\n\n".join(map(_unwrap, (found.help or "").split("\n\n")))
    return found


def _unwrap(paragraph: str) -> str:
    """Join the lines of a paragraph, which the terminal wraps again; examples keep their lines."""
    return paragraph if paragraph.startswith("Examples:") else " ".join(paragraph.split())


def _refuse_old_name(old: str, new: str) -> TyperCommand:
    """Return a command that prints its new form and exits with status 2."""

    def refuse() -> None:
        say_error(f"error: `speedrunner {old}` is now `{new}`")
        raise typer.Exit(2)

    return TyperCommand(old, callback=refuse, context_settings=ANYTHING, add_help_option=False, hidden=True)
