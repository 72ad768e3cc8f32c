"""`speedrunner bench tokens`: measure what tokens cost on an engine, and write a price list."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from msgspec import to_builtins

from speedrunner.bench import measurement
from speedrunner.bench.record import make_folder, open_record, subject_of
from speedrunner.bench.token_costs import measure_units, summarize
from speedrunner.cli.bench_command import fitted_setup, numbers
from speedrunner.cli.command import AsJson, EngineOverrides, carry_out
from speedrunner.cli.output import say, waiting_line
from speedrunner.plain.plain_yaml import write_yaml
from speedrunner.store.files import write_atomic
from speedrunner.store.run_lock import RunLock


def tokens(
    overrides: EngineOverrides = None,
    *,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the record.", show_default=False)],
    usd_per_gpu_hour: Annotated[
        float,
        typer.Option(
            min=1e-6,
            max=1e6,
            help="USD of an hour of one GPU (without a GPU, of one core).",
            show_default=False,
        ),
    ],
    contexts: Annotated[str, typer.Option(help="Prompt tokens.")] = "512,2048,8192,32768",
    in_flight: Annotated[str, typer.Option(help="Requests at the same time.")] = "1,8,32,64",
    repeats: Annotated[int, typer.Option(min=2, help="Times that each unit is measured.")] = 5,
    as_json: AsJson = False,
) -> None:
    """Measure what an uncached, a cached and an output token cost.

    The costs are GPU seconds and joules (without a GPU, CPU seconds) by prompt length and requests in flight.
    DIR/measured-MODEL.yaml is a price list for --prices and prices=, at the most requests in flight. Rerun
    the same command to resume.

    Example: speedrunner bench tokens model=tiny-hybrid --usd-per-gpu-hour 0.05 --out records/tokens
    """
    lengths, levels = numbers("--contexts", contexts), numbers("--in-flight", in_flight)
    setup = fitted_setup(overrides or [])
    make_folder(out)
    with RunLock(out / "lock"), waiting_line() as status:
        record = open_record(out, subject_of(setup, overrides or []))
        units, notes = carry_out(
            lambda shutdown: measure_units(setup, record, lengths, levels, repeats, status, shutdown),
            kept=f"; measured units are in {out}. Rerun the same command to continue",
        )
        found, prices = summarize(setup, record, units, usd_per_gpu_hour)
        file = out / f"measured-{setup.model_config.name}.yaml"
        write_atomic(
            file, f"# USD, seconds and joules of a million\n{write_yaml(to_builtins(prices))}".encode()
        )
    found.notes += [*notes, f"The price list is {file}: speedrunner cost RUN --prices {file}"]
    say(measurement.as_json(found) if as_json else measurement.as_text(found))
