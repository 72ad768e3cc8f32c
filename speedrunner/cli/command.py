"""What commands share: how they print, wait, and end at a signal."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.text import Text

from serving.cards import CHECKOUT, ModelCard
from speedrunner.console import visible
from speedrunner.runs.drain import Drain, Interrupted

T = TypeVar("T")

Status = Callable[[str], None]
"""Shows what is waited for."""

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def plain_console(*, stderr: bool = False) -> Console:
    """A console that prints texts as they are: paths and games may hold what would be markup."""
    return Console(stderr=stderr, highlight=False, markup=False, emoji=False)


def carry_out(
    work: Callable[[Drain], Coroutine[Any, Any, T]], say: Callable[[str], None], kept: str = ""
) -> T:
    """Run `work`, drained on SIGINT and SIGTERM, with exit status 128 + the signal's number then.

    Args:
        say: tells of the signal.
        kept: said after the signal's name.
    """
    drain = Drain(say)
    try:
        return asyncio.run(drain.run(work(drain)))
    except Interrupted as interrupted:
        say(f"{interrupted}{kept}")
        raise typer.Exit(128 + interrupted.number) from None


def carry_out_showing(work: Callable[[Status], Coroutine[Any, Any, T]]) -> T:
    """Run `work`, and show on standard error what it waits for; a signal ends it in good order."""
    with waiting_line() as status:
        return carry_out(lambda drain: work(status), lambda line: typer.echo(line, err=True))


@contextmanager
def waiting_line() -> Iterator[Status]:
    """A line on standard error, where that is a terminal, with what is waited for."""
    line = Console(stderr=True).status("")
    with line:
        yield lambda text: line.update(Text(visible(text)))


def server_log(command: str, card: ModelCard) -> Path:
    """The file for the output of a server that `command` starts for itself."""
    name = re.sub(r"[^\w.-]+", "_", card.name)
    return CHECKOUT / ".cache" / command / f"{name}-{os.getpid()}.log"
