"""The entry point of the command line. A command's module is imported only when the command is called."""

from __future__ import annotations

import errno
import gc
import io
import resource
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from inspect import getdoc
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from speedrunner.cli.output import say, say_error
from speedrunner.plain.console import shorten
from speedrunner.plain.plain_records import read_table


class Command(NamedTuple):
    """One command, or a group of commands.

    Attributes:
        words: the words that call it, such as `bench probe tools`.
        help: the first line of the function's docstring, at most 80 characters.
        heading: its heading in the help.
        module: the module below `speedrunner.cli`; empty for a group.
    """

    words: str
    help: str
    heading: str | None = None
    module: str = ""

    @property
    def group(self) -> str:
        """The words that call its group."""
        return self.words.rpartition(" ")[0]

    @property
    def name(self) -> str:
        """The last word."""
        return self.words.rpartition(" ")[2]

    def load_function(self) -> Callable[..., None]:
        """Import the function that runs it."""
        gc.disable()  # loading modules leaves no garbage
        try:
            module = import_module(f"speedrunner.cli.{self.module}")
        finally:
            gc.enable()
        gc.freeze()  # the collector skips the modules while the command runs
        function: Callable[..., None] = getattr(module, "list_" if self.name == "list" else self.name)
        return function


COMMANDS = [Command(**row) for row in read_table(Path(__file__).with_name("commands.csv"))]
"""The commands in the order of `speedrunner --help`."""

OPEN_FILES = 65_536
"""Open files that a command may have, if the hard limit allows as many. An episode takes a few, and many
shells allow 1,024. The number is bounded because some programs close every possible one when they start."""


READERS = ("show", "compare", "cost", "report", "view", "status", "export")
"""Commands that only read runs, possibly of someone else."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command, by default the process's own. Errors for people are one line and exit status 1."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # some systems have lower limits of their own
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, OPEN_FILES)), hard))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a login's encoding may lack a character
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        make_app(given)(given, prog_name="speedrunner")
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # its reader has enough (`| head`)
            end.code = 0
        raise
    except Exception as error:
        line = _explain(error, given)
        if line is None:
            raise
        say_error(line)
        sys.exit(1)


def _explain(error: Exception, arguments: Sequence[str]) -> str | None:
    """Return the line for a command's error; `None` for a bug, which shows its traceback."""
    from speedrunner.agents.loop import ToolError
    from speedrunner.library.rules import InvalidSkill
    from speedrunner.store.discovery import DAMAGED, describe, is_for_people

    text = str(error)
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        return f"error: this name is too long for a file: {shorten(str(error.filename))}"
    if isinstance(error, (InvalidSkill, ToolError)):  # texts for a model, which a method has not caught
        return None
    if isinstance(error, ModuleNotFoundError):
        text += ": install it, or build the environment again with `make venv`"
    elif not is_for_people(error):
        if next(iter(arguments), "") not in READERS or not isinstance(error, DAMAGED):
            return None
        text = describe(error)
    return f"error: {'; '.join(filter(None, map(str.strip, text.splitlines())))}"


def make_app(arguments: Sequence[str]) -> typer.Typer:
    """Return the command line. Only the command that the arguments call is imported: help needs no other."""
    about = "LLM agents that learn programmatic skills online, on open models served by vLLM."
    groups = {"": _make_group(about)}
    groups[""].callback()(_read_options)
    for command in COMMANDS:
        words = command.words.split()
        group, panel = groups[command.group], command.heading
        if not command.module:
            groups[command.words] = _make_group(command.help)
            group.add_typer(groups[command.words], name=command.name, rich_help_panel=panel)
        elif list(arguments[: len(words)]) == words:
            function = command.load_function()
            parts = (getdoc(function) or "").split("\n\n")  # the terminal wraps all but examples again
            text = "\n\n".join(
                part if part.startswith("Examples:") else " ".join(part.split()) for part in parts
            )
            group.command(command.name, help=text, rich_help_panel=panel)(function)
        else:
            group.command(command.name, help=command.help, rich_help_panel=panel)(lambda: None)
    return groups[""]


def _make_group(text: str) -> typer.Typer:
    settings = {"help_option_names": ["-h", "--help"]}
    return typer.Typer(
        help=text,
        add_completion=False,
        no_args_is_help=True,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings=settings,
    )


def _print_versions(is_given: bool) -> None:
    if is_given:
        from speedrunner.runs.identity import versions  # no other command needs it

        packages = versions()
        width = max(map(len, packages))
        say(*(f"{name:{width}}  {text}" for name, text in packages.items()))
        raise typer.Exit


VERSION = typer.Option(
    "--version",
    callback=_print_versions,
    is_eager=True,
    expose_value=False,
    help="Print the versions that can change a run's results.",
)


def _read_options(version: Annotated[bool, VERSION] = False) -> None:
    """Parse the options before a command."""
