"""`speedrunner bench replay`: compare tokens of recorded runs with and without the prefix cache."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from speedrunner.bench.cache_truth import RecordedRun, compare_runs
from speedrunner.cli.command import AsJson, Trust, show_measured
from speedrunner.config.schema import InvalidConfig
from speedrunner.runs.setup import set_up
from speedrunner.runs.stored_setup import compose_stored
from speedrunner.store.run_data import load


def replay(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN... [KEY=VALUE]...",
            help="Directories of runs of one model, then settings that differ from theirs, such as a running"
            " server (serving.url=...; by default one is started).",
        ),
    ],
    tokens: Annotated[
        int,
        typer.Option(min=1, help="Recorded tokens of each run to compare."),
    ] = 200,
    trust: Trust = None,
    as_json: AsJson = False,
) -> None:
    """Replay runs to test whether the prefix cache changes answers.

    Answers are forced to the recorded ones. The log-probabilities of some recorded tokens are compared: do
    cached prefixes give the same distribution as computed ones? `speedrunner bench tokens` measures what the
    cache saves.

    Example: speedrunner bench replay runs/demo run.in_flight=4
    """
    paths = [each for each in runs if "=" not in each or Path(each).exists()]
    if not paths:
        raise InvalidConfig("name at least one run's directory")
    overrides = [each for each in runs if each not in paths]
    loaded = [load(path) for path in dict.fromkeys(paths)]
    recorded = [RecordedRun(run, set_up(compose_stored(run, overrides, trust or []))) for run in loaded]
    show_measured(lambda status: compare_runs(recorded, tokens, status), as_json)
