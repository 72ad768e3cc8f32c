"""`speedrunner view`: runs, episodes, skills and sleeps in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from speedrunner.cli.command import waiting_line
from speedrunner.console import visible


def view(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="RUN", help="A run, or a folder with runs in or below it.", show_default=False
        ),
    ],
    port: Annotated[
        int, typer.Option(metavar="PORT", min=0, max=65535, help="Where to listen; 0: any port that is free.")
    ] = 0,
    static: Annotated[
        Path | None,
        typer.Option(
            metavar="OUT", help="Write the pages into this folder and serve nothing.", show_default=False
        ),
    ] = None,
) -> None:
    """Show runs in a browser, also while they go on: episodes turn by turn, skills, sleeps, learning curves.

    The address that is printed works on this machine alone (from another one, through `ssh -L`) and holds a
    token that nobody else here knows. It serves until Ctrl-C.

    Examples: speedrunner view runs/demo; speedrunner view runs/demo --static pages
    """
    from speedrunner.store.files import StorageError
    from speedrunner.view.server import ADDRESS, listen, new_token, serve
    from speedrunner.view.site import Site
    from speedrunner.view.static import write

    site = Site(folder, static=static is not None)
    slugs = list(site.runs())
    if not slugs:
        raise StorageError(f"{folder} holds no run: no folder in it has a config.yaml")
    if static is not None:
        with waiting_line() as status:
            count, problems = write(site, static, status)
        typer.echo(visible(f"{count} pages: open {static / 'index.html'}"))
        for path in problems:
            typer.echo(visible(f"error: {path} could not be made: `speedrunner view` shows why"), err=True)
        raise typer.Exit(1 if problems else 0)
    listener, token = listen(port), new_token()
    first = f"runs/{slugs[0]}/index.html" if len(slugs) == 1 else ""
    try:
        typer.echo("Ctrl-C ends it", err=True)
        typer.echo(f"http://{ADDRESS}:{listener.getsockname()[1]}/{token}/{first}")
        serve(site, token, listener)
    except KeyboardInterrupt:
        raise typer.Exit(0) from None
