"""Generate the page docs/commands.md from the commands: `python -m speedrunner.cli.reference`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from typer.core import TyperCommand, TyperOption

from speedrunner.cli.commands import COMMANDS, Command
from speedrunner.cli.lazy_group import load

PAGE = Path(__file__).parents[2] / "docs" / "commands.md"

INTRODUCTION = (
    "# Commands",
    "Every command with its arguments and options, for users of the command line."
    " `speedrunner COMMAND --help` prints the same."
    " This page is generated: `python -m speedrunner.cli.reference` writes it.",
    "Settings (`KEY=VALUE`) choose what a run plays. `speedrunner list keys` prints all of them with their"
    " defaults. `--json` prints one JSON object for programs.",
    "Exit status 0: success. 1: an error, reported in one line, or a failed check. 2: a wrong command line.",
)


def render_page() -> str:
    """Return the page's text."""
    return "\n\n".join([*INTRODUCTION, *_sections()]) + "\n"


def _sections() -> Iterator[str]:
    for heading, commands in COMMANDS.items():
        yield f"## {heading}"
        yield "\n".join(f"- [`{each.name}`](#speedrunner-{each.name}): {each.help}" for each in commands)
        for each in commands:
            yield f"### speedrunner {each.name}"
            if each.commands:
                yield each.help
            for words, below in leaves(each.commands, f"speedrunner {each.name}"):
                yield f"#### {words}"
                yield from _describe(below, words)
            if not each.commands:
                yield from _describe(each, f"speedrunner {each.name}")


def leaves(commands: Iterable[Command], before: str) -> Iterator[tuple[str, Command]]:
    """Yield the commands of a group and of its groups, with the words that call each."""
    for each in commands:
        words = f"{before} {each.name}"
        if each.commands:
            yield from leaves(each.commands, words)
        else:
            yield words, each


def _describe(command: Command, words: str) -> Iterator[str]:
    """Yield a command's paragraphs, examples, usage and parameters."""
    found = load(command)
    assert isinstance(found, TyperCommand)
    for paragraph in (found.help or "").split("\n\n"):
        title, _, examples = paragraph.partition(":")
        if title in ("Example", "Examples"):
            lines = [line.strip() for line in examples.splitlines() if line.strip()]
            yield "\n".join(["```", *lines, "```"])
        else:
            yield paragraph
    arguments = [_name(each) for each in found.params if not isinstance(each, TyperOption)]
    yield f"Usage: `{' '.join([words, *arguments, '[OPTIONS]'])}`"
    if rows := [row for each in found.params if (row := _describe_parameter(each))]:
        yield "\n".join(rows)


def _describe_parameter(parameter: Any) -> str:
    """Return an argument or option as a line of a list; empty for a hidden one."""
    if getattr(parameter, "hidden", False):
        return ""
    if not isinstance(parameter, TyperOption):
        return f"- `{_name(parameter)}`: {parameter.help}"
    value = "" if parameter.is_flag else f" {parameter.metavar or 'VALUE'}"
    names = ", ".join(f"`{each}{value}`" for each in (*parameter.opts, *parameter.secondary_opts))
    required = " Required." if parameter.required else ""
    default = parameter.default
    shown = "" if default in (None, False) or not parameter.show_default else f" Default: {default}."
    return f"- {names}: {parameter.help}{required}{shown}"


def _name(argument: Any) -> str:
    return str(argument.metavar or argument.name.upper())


if __name__ == "__main__":
    PAGE.write_text(render_page(), encoding="utf-8")
