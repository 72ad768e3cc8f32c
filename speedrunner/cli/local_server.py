"""Shared by commands that serve clients of this machine: tokens, sessions, and the end by a signal."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from speedrunner.cli.output import say_error
from speedrunner.config.schema import InvalidConfig
from speedrunner.pages.loopback import new_token
from speedrunner.runs.shutdown import Interrupted, Shutdown
from speedrunner.store.files import explain_errors, open_new

SESSIONS = 4

TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        help="File with the token of HTTP clients, of mode 600; created if missing. Default: a new token,"
        " printed once.",
        show_default=False,
    ),
]

Sessions = Annotated[int, typer.Option("--sessions", metavar="N", min=1, help="Most HTTP clients at a time.")]


def serve_until_signal(work: Coroutine[Any, Any, None]) -> None:
    """Run a server until SIGINT or SIGTERM, and say which ended it."""
    try:
        asyncio.run(Shutdown(lambda line: None).run(work))
    except Interrupted as interrupted:
        say_error(str(interrupted))


def read_token(file: Path) -> str:
    """Return the token in a file, which is created if missing. Raises `InvalidConfig`, `StorageError`."""
    with suppress(RuntimeError):  # a user who does not exist
        file = file.expanduser()  # a shell leaves --token-file=~/FILE as it is
    with explain_errors(file, "read"):
        if not file.exists():
            with open_new(file) as created:
                created.write(f"{new_token()}\n".encode())
        mode = stat.S_IMODE(file.stat().st_mode)
        token = file.read_text(encoding="utf-8", errors="replace").strip()
    if mode & 0o077:
        raise InvalidConfig(f"--token-file {file} has mode {mode:o}, so others may read it: chmod 600 {file}")
    if not token.isascii() or len(token) < 16 or len(token.split()) != 1:
        raise InvalidConfig(
            f"--token-file {file} has no token: write one word of at least 16 ASCII characters"
        )
    return token
