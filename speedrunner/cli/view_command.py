"""`speedrunner view`: browse runs, episodes, skills and sleeps."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Annotated

import typer

from speedrunner.cli.output import say, say_error, waiting_line
from speedrunner.pages.site import ADDRESS, Site, make_server, write_pages
from speedrunner.plain.console import count_of
from speedrunner.store.files import StorageError


def view(
    folder: Annotated[
        Path,
        typer.Argument(metavar="RUN", help="A run, or a folder with runs in or below it."),
    ],
    port: Annotated[
        int, typer.Option(metavar="PORT", min=0, max=65535, help="Port to listen on. 0: any free port.")
    ] = 0,
    static: Annotated[
        Path | None,
        typer.Option(metavar="OUT", help="Write the pages into this folder and serve nothing."),
    ] = None,
) -> None:
    """Browse runs, episodes, skills and sleeps in a web browser.

    Runs may be unfinished. The printed address works on this machine only (from another one, through
    `ssh -L`) and contains a secret token. Ctrl-C stops the server.

    Examples:
      speedrunner view runs/demo
      speedrunner view runs/demo --static pages
    """
    site = Site(folder)
    slugs = list(site.runs())
    if not slugs:
        raise StorageError(f"{folder} contains no runs: no folder in it has a config.yaml")
    if static is not None:
        with waiting_line() as status:
            count, problems = write_pages(site, static, status)
        say(f"{count_of(count, 'page')}: open {static / 'index.html'}")
        for path, problem in problems.items():
            say_error(f"error: {path} was left out: {problem}")
        raise typer.Exit(1 if problems else 0)
    token = secrets.token_urlsafe(16)
    server = make_server(site, token, port)
    first = f"runs/{slugs[0]}/index.html" if len(slugs) == 1 else ""
    try:
        say_error("Press Ctrl-C to stop")
        say(f"http://{ADDRESS}:{server.server_address[1]}/{token}/{first}")
        server.serve_forever()
    except KeyboardInterrupt:
        raise typer.Exit(0) from None
