"""`speedrunner verify`: whether a run is what its records say."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from speedrunner.cli.command import AsJson, Trust, carry_out, end_report, show_finding, waiting_line


def verify(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run's directory.", show_default=False)],
    trust: Trust = None,
    minutes: Annotated[
        float, typer.Option("--minutes", min=0.0, help="How long it may take. The rest is not checked.")
    ] = 60.0,
    as_json: AsJson = False,
) -> None:
    """Check a run without a model: its files against their seals, every call by playing it again, prompts,
    accounts, policies, plan. Exit status 1: something differs, or the time was over
    before all was checked.

    Example: speedrunner verify runs/demo
    """
    from speedrunner.verification.verify import verify as verified

    with waiting_line() as status:
        found = carry_out(
            lambda drain: verified(
                run,
                status,
                lambda each: None if as_json else show_finding(each),
                trust or [],
                minutes * 60,
            ),
            lambda line: typer.echo(line, err=True),
        )
    end_report(found, as_json)
