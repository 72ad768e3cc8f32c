"""`speedrunner bench replay`: compare tokens of a recorded run with and without the prefix cache."""

from __future__ import annotations

from typing import Annotated

import typer

from speedrunner.bench.cache_truth import compare_run
from speedrunner.cli.command import AsJson, EngineOverrides, RunPath, Trust, show_measured
from speedrunner.runs.setup import set_up
from speedrunner.runs.stored_setup import compose_stored
from speedrunner.store.run_data import load


def replay(
    run: RunPath,
    overrides: EngineOverrides = None,
    tokens: Annotated[int, typer.Option(min=1, help="Recorded tokens to compare.")] = 200,
    trust: Trust = None,
    as_json: AsJson = False,
) -> None:
    """Replay a run to test whether the prefix cache changes answers.

    Answers are forced to the recorded ones. The log-probabilities of some recorded tokens are compared: do
    cached prefixes give the same distribution as computed ones? `speedrunner bench tokens` measures what the
    cache saves.

    Example: speedrunner bench replay runs/demo serving.url=unix:/path/to/socket
    """
    data = load(run)
    setup = set_up(compose_stored(data, overrides or [], trust or []))
    show_measured(lambda status: compare_run(data, setup, tokens, status), as_json)
