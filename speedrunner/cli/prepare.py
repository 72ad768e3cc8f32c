"""`speedrunner prepare`: fetch what a node without a network needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from speedrunner.cli.command import waiting_line
from speedrunner.cli.doctor import Runs
from speedrunner.console import visible

if TYPE_CHECKING:
    from speedrunner.cluster.prepare import Prepared


def prepare(what: Runs = None) -> None:
    """Fetch what runs need: weights and tokenizers of all their models, Java, what environments compile.

    For a machine with a network, such as a login node; HF_HOME names the place of weights of the hub. What is
    there is not fetched again. Exit status 1: something is not there.

    Example: speedrunner prepare experiment=main model=qwen3.5-27b
    """
    from speedrunner.cluster.prepare import prepare as bring
    from speedrunner.cluster.subject import subject_of

    def say(one: Prepared) -> None:
        typer.echo(
            visible(f"{'ready' if one.ready else 'FAILED':6} {one.name}: {' '.join(one.text.split())}")
        )

    subject = subject_of(what or [])
    with waiting_line() as status:
        done = bring(subject, status, say)
    if not all(one.ready for one in done):
        raise typer.Exit(1)
    typer.echo(visible(f"now, on a node: {subject.doctor}"))
