"""The entry point of the command line. `commands` has the table of commands, each in its own module."""

from __future__ import annotations

import io
import os
import resource
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated

import typer
from typer.main import get_command

from speedrunner.cli.commands import COMMANDS
from speedrunner.cli.lazy_group import LazyGroup
from speedrunner.cli.output import say, say_error

OPEN_FILES = 65_536
"""Open files that a command may have, if the hard limit allows as many. An episode takes a few, and many
shells allow 1,024. The number is bounded because some programs close every possible one when they start."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command, by default the process's own. Errors for people are one line and exit status 1."""
    raise_open_files()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a login's encoding may lack a character
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        make_app().main(given, "speedrunner")
    except BrokenPipeError:
        # The reader of the output has closed it (`| head`).
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:
        from speedrunner.cli.error_messages import explain  # imports many modules, needed for errors only

        line = explain(error, given)
        if line is None:
            raise
        say_error(line)
        sys.exit(1)


def raise_open_files() -> None:
    """Raise the limit of open files, for this process and those that it starts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # some systems have lower limits of their own
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, OPEN_FILES)), hard))


def make_app() -> LazyGroup:
    """Return the command line: all commands, none of them imported."""
    root = typer.Typer(add_completion=False)
    root.callback()(_read_options)
    return LazyGroup(
        ((heading, each) for heading, commands in COMMANDS.items() for each in commands),
        name="speedrunner",
        help="LLM agents that learn programmatic skills online, on open models served by vLLM.",
        params=get_command(root).params,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def _print_versions(is_given: bool) -> None:
    if is_given:
        from speedrunner.runs.machine import versions  # no other command needs it

        found = versions()
        width = max(map(len, found))
        say(*(f"{name:{width}}  {text}" for name, text in found.items()))
        raise typer.Exit


def _read_options(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_versions,
            is_eager=True,
            expose_value=False,
            help="Print the versions that can change a run's results.",
        ),
    ] = False,
) -> None:
    """Parse the options before a command."""
