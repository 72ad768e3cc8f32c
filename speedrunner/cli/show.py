"""`speedrunner show`: one recorded episode as text."""

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
            help="Its key, such as train/0007 or test/0050/0012; train/7 and test/50/12 will do.",
            show_default=False,
        ),
    ],
) -> None:
    """Print an episode: what was said, thought, called and seen, its tokens by class, its end and score.

    Example: speedrunner show runs/demo test/10/3
    """
    from speedrunner.agents.texts import whole_lines
    from speedrunner.store.data import load

    for line in whole_lines(load(run).trajectory(episode)):
        typer.echo(visible(line))
