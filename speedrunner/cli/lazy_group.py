"""A group of commands that imports a command's module only when the command is called."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from speedrunner.cli.commands import Command


class LazyGroup(TyperGroup):
    """The commands of a table, with their headings, in the order of the help, which imports no command."""

    def __init__(self, table: Iterable[tuple[str | None, Command]], **options: Any) -> None:
        entries = list(table)
        stubs = [TyperCommand(each.name, help=each.help, rich_help_panel=panel) for panel, each in entries]
        super().__init__(commands=stubs, no_args_is_help=True, rich_markup_mode="rich", **options)
        self._table = {each.name: each for _, each in entries}

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the loaded command that the arguments call."""
        name, found, rest = super().resolve_command(ctx, args)
        return name, load(self._table[name]) if name in self._table else found, rest


def load(command: Command) -> TyperCommand | LazyGroup:
    """Import a command and return it with its options; for a group, only the list of its commands."""
    name = command.name
    if command.commands:
        table = ((None, each) for each in command.commands)
        return LazyGroup(table, name=name, help=command.help)
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
