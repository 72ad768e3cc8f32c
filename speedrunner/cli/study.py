"""`speedrunner study`: recorded runs, played again under other conditions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from speedrunner.cli.command import AsJson, PriceList, Trust, show_measured
from speedrunner.config.schema import InvalidConfig

if TYPE_CHECKING:
    from speedrunner.bench.cache_study import RecordedRun

app = typer.Typer(help="Play recorded runs again under other conditions.", no_args_is_help=True)


@app.command()
def cache(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN... [KEY=VALUE]...",
            help="Run directories of one model; then what differs from their configuration, such as a running"
            " server (serving.url=...). Without that, one is started.",
        ),
    ],
    in_flight: Annotated[
        int | None,
        typer.Option(min=1, help="Episodes at the same time; by default as in the run.", show_default=False),
    ] = None,
    prices: PriceList = None,
    csv: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the figures there too.", show_default=False)
    ] = None,
    trust: Trust = None,
    as_json: AsJson = False,
) -> None:
    """Play the requests of runs again, with the prefix cache and with nothing shared, and compare.

    Answers are forced to the recorded ones. Runs of several methods show what part of each one's prompts the
    cache gives.

    Example: speedrunner study cache runs/demo --csv cache.csv
    """
    from speedrunner.bench.cache_study import study_cache, write_csv
    from speedrunner.results.pricing import price_list

    recorded = _recorded(runs, in_flight, trust or [])
    setup = recorded[0].setup
    chosen = setup.config.prices if prices is None else price_list(prices)
    list_ = chosen.in_place_of(setup.card.prices)
    if csv is not None and not csv.resolve().parent.is_dir():
        raise InvalidConfig(f"--csv {csv}: there is no folder {csv.parent}")
    study = show_measured(lambda status: study_cache(recorded, list_, status), as_json)
    if csv is not None:
        write_csv(study, csv)


def _recorded(arguments: list[str], in_flight: int | None, trust: list[str]) -> list[RecordedRun]:
    from speedrunner.bench.cache_study import RecordedRun
    from speedrunner.runs.setup import set_up
    from speedrunner.runs.stored_setup import compose_stored
    from speedrunner.store.data import load

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
