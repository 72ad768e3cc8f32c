"""`speedrunner show`: one recorded episode or sleep as text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from speedrunner.console import visible


def show(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run's directory.", show_default=False)],
    episode: Annotated[
        str,
        typer.Argument(
            metavar="EPISODE",
            help="Its key, such as train/0007, test/0050/0012 or sleep/0001; train/7 and test/50/12 will do.",
            show_default=False,
        ),
    ],
) -> None:
    """Print an episode: what was said, thought, called and seen, its tokens by class, its end and score. Of a
    sleep, what its agents read and wrote.

    Example: speedrunner show runs/demo test/10/3
    """
    from speedrunner.agents.texts import sleep_lines, whole_lines
    from speedrunner.store.data import load
    from speedrunner.store.processes import remarks

    data, (kind, _, number) = load(run), episode.partition("/")
    if kind == "sleep" and number.isdecimal():
        lines = sleep_lines(data.sleep(int(number)))
    else:
        lines = whole_lines(data.trajectory(episode))
    for line in (*lines, *remarks(data.processes)):
        typer.echo(visible(line))
