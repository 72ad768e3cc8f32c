"""`speedrunner import`: a run from its exported trajectories."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from speedrunner.cli.output import say
from speedrunner.config.schema import InvalidConfig
from speedrunner.export.atif_import import import_run


def import_(
    source: Annotated[Path, typer.Argument(metavar="DIR", help="A run's folder in an export of --to atif.")],
    out: Annotated[
        Path, typer.Option("--out", metavar="RUN", help="Directory of the new run.", show_default=False)
    ],
) -> None:
    """Rebuild a run from its exported ATIF trajectories.

    The run has the same records, byte for byte, without the logs. Check it with `speedrunner verify RUN`.

    Example: speedrunner import demo-atif/demo --out runs/demo-copy
    """
    if out.exists():
        raise InvalidConfig(f"{out} exists: name another directory with --out")
    run = import_run(source, out)
    say(f"{len(run.rows)} episodes and {len(run.sleeps)} sleeps imported into {out}")
