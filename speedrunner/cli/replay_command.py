"""`speedrunner bench replay`: repeat the requests of recorded runs with and without the prefix cache."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from speedrunner.bench.cache_study import TOKENS, study_cache
from speedrunner.bench.forced_replay import RecordedRun
from speedrunner.cli.command import AsJson, PriceList, Trust, show_measured
from speedrunner.config.schema import InvalidConfig
from speedrunner.results.pricing import price_list
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
    in_flight: Annotated[
        int | None,
        typer.Option(min=1, help="Episodes at the same time. Default: as in the run.", show_default=False),
    ] = None,
    tokens: Annotated[
        int,
        typer.Option(min=0, help="Recorded tokens per method to compare log-probabilities of; 0: none."),
    ] = TOKENS,
    prices: PriceList = None,
    trust: Trust = None,
    as_json: AsJson = False,
) -> None:
    """Replay the requests of runs with and without the prefix cache.

    Answers are forced to the recorded ones. Runs of several methods show which share of each method's prompts
    comes from the cache. Then the log-probabilities of some recorded tokens are compared: do cached prefixes
    give the same distribution as computed ones?

    Example: speedrunner bench replay runs/demo --in-flight 4
    """
    recorded = _load_runs(runs, in_flight, trust or [])
    setup = recorded[0].setup
    chosen = setup.config.prices if prices is None else price_list(prices)
    list_ = chosen.in_place_of(setup.model_config.prices)
    show_measured(lambda status: study_cache(recorded, list_, status, tokens), as_json)


def _load_runs(arguments: Sequence[str], in_flight: int | None, trust: Sequence[str]) -> list[RecordedRun]:
    paths = [each for each in arguments if "=" not in each or Path(each).exists()]
    overrides = [each for each in arguments if each not in paths]
    if not paths:
        raise InvalidConfig("name at least one run's directory")
    found = []
    for path in dict.fromkeys(paths):
        run = load(path)
        config = compose_stored(run, overrides, trust)
        found.append(RecordedRun(run, set_up(config), in_flight or config.run.in_flight))
    return found
