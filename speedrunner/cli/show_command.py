"""`speedrunner show`: print one recorded episode or sleep."""

from __future__ import annotations

from typing import Annotated

import typer

from speedrunner.agents.texts import full_lines, sleep_lines
from speedrunner.cli.command import RunPath
from speedrunner.cli.output import say
from speedrunner.store.process_notes import caveats
from speedrunner.store.run_data import load


def show(
    run: RunPath,
    episode: Annotated[
        str,
        typer.Argument(
            metavar="EPISODE",
            help="Its key: train/0007, test/0050/0012 or sleep/0001. Short forms work: train/7, test/50/12.",
            show_default=False,
        ),
    ],
) -> None:
    """Print a recorded episode or sleep.

    An episode is printed turn by turn: messages, thoughts, calls and observations, tokens by class, the end
    and the score. A sleep is printed with everything that its agents read and wrote.

    Example: speedrunner show runs/demo test/10/3
    """
    data, (kind, _, number) = load(run), episode.partition("/")
    is_sleep = kind == "sleep" and number.isdecimal()
    lines = sleep_lines(data.sleep(int(number))) if is_sleep else full_lines(data.trajectory(episode))
    say(*lines, *caveats(data.processes))
