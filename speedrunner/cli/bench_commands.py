"""`speedrunner bench`: compare this machine and its engine with stated targets, and measure token costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import pandas
import typer
from msgspec import to_builtins

from serving.gpu_check import require_gpus
from serving.sizing import fit
from speedrunner.bench import measurement
from speedrunner.bench.caching import SAVINGS, BlockCost, compare_savings, measure_caching
from speedrunner.bench.engine import completions_api, open_engine, playing_setup
from speedrunner.bench.forced_answers import compare_run
from speedrunner.bench.gpu.steps import describe_environment, play_steps, steps_of
from speedrunner.bench.measurement import Measurement, as_text
from speedrunner.bench.probes import measure_tools, probe_cache
from speedrunner.bench.rollouts import measure_rollouts
from speedrunner.bench.token_costs import measure_units, summarize
from speedrunner.cli.command import AsJson, EngineOverrides, RunPath, Trust, carry_out, show_measured
from speedrunner.cli.output import say, say_error, waiting_line
from speedrunner.config.compose import compose
from speedrunner.config.schema import InvalidConfig
from speedrunner.pages.plots import LOOKS, Panel, ReportFigure, Series, draw_files
from speedrunner.plain.console import Status
from speedrunner.plain.plain_yaml import write_yaml
from speedrunner.results.inference import Estimate
from speedrunner.results.writing import table_files, table_of
from speedrunner.runs.setup import Setup, choose_model_config, set_up
from speedrunner.runs.stored_setup import compose_stored
from speedrunner.store.files import write_folder
from speedrunner.store.run_data import load


def numbers(option: str, text: str) -> list[int]:
    """Return several numbers written as `1,4,16`, sorted. Raises `InvalidConfig`."""
    try:
        parsed = sorted({int(number) for number in text.split(",")})
    except ValueError:
        parsed = [0]
    if parsed[0] < 1:
        raise InvalidConfig(f"{option} {text}: write numbers separated by commas, such as 1,4,16")
    return parsed


def fitted_setup(overrides: list[str]) -> Setup:
    """Return a setup; if a server is started, its model is fitted to the GPUs here. Raises `InvalidConfig`,
    `InvalidModelConfig`, `ServerFailed`."""
    setup = playing_setup(overrides)
    if setup.config.serving.url is None:
        gpus = require_gpus(setup.model_config, say_error)
        setup = replace(setup, model_config=fit(setup.model_config, gpus))
    return setup


def rollout(
    overrides: EngineOverrides = None,
    in_flight: Annotated[str, typer.Option(help="Episodes at the same time, such as 1,4,16.")] = "32",
    pairs: Annotated[int, typer.Option(min=1, help="Rollouts of each size, each with its replay.")] = 5,
    as_json: AsJson = False,
) -> None:
    """Compare rollouts with a bare replay and the cache's maximum.

    The bare replay sends the same requests again, and does nothing else. The targets are
    0.90 (on a GPU 0.95) of its output tokens per second, and 99 % (attention) or 97 % (hybrid models) of the
    tokens that the cache could give. Compare tokens per second within one table only: they depend on what
    else the machine does.

    Example: speedrunner bench rollout model=tiny-random --in-flight 1,8 --pairs 3
    """
    levels = numbers("--in-flight", in_flight)
    setup = playing_setup(overrides or [])

    async def measure(status: Status) -> Measurement:
        async with open_engine(setup.model_config, setup.config, status) as deployment:
            return await measure_rollouts(deployment, setup, status, levels, pairs)

    show_measured(measure, as_json)


def gpu(
    overrides: EngineOverrides = None,
    *,
    only: Annotated[str, typer.Option(help="Play only these steps, such as tools,utilisation.")] = "",
) -> None:
    """Run all benchmarks of a model on this machine.

    The steps are capacity, tool calls, prefix cache, utilisation and rollouts. Each prints its result
    at once. Exit status 1: a step failed, or a target is missed.

    Example: speedrunner bench gpu model=qwen3.5-27b model.load_format=dummy --only tools,utilisation
    """
    setup = fitted_setup(overrides or [])
    steps = steps_of(setup, [name for name in only.split(",") if name])

    def show(measured: Measurement) -> None:
        say(f"{as_text(measured)}\n")

    show(describe_environment(setup))
    with waiting_line() as status:
        is_good = carry_out(lambda shutdown: play_steps(setup, steps, status, shutdown, show))
    if not is_good:
        raise typer.Exit(1)


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


def caching(
    given: Annotated[
        list[str],
        typer.Argument(metavar="RUN... [KEY=VALUE...]", help="Finished runs of one model, and settings."),
    ],
    in_flight: Annotated[str, typer.Option(help="Episodes at the same time, such as 8,32.")] = "8,32",
    rounds: Annotated[
        int, typer.Option(min=1, help="Rounds of all blocks, each in an order and its reverse.")
    ] = 1,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for the table of savings and its figure.")
    ] = None,
    trust: Trust = None,
    as_json: AsJson = False,
) -> None:
    """Measure what the prefix cache saves before and after learning.

    The first and the last evaluation of each run are played again with forced answers: with a shared cache,
    with a cache within each episode, and without one. Seeds of one condition are runs to name together. The
    figure shows the saving at both, by method and episodes in flight: each run, and the means.

    Example: speedrunner bench caching runs/paper/babyai-speedrunner-*
    """
    overrides = [text for text in given if "=" in text and not Path(text).exists()]
    stored = [load(Path(text)) for text in given if text not in overrides]
    if not stored:
        raise InvalidConfig("no run is named: give one or several before the settings")
    pairs = [(data, set_up(compose_stored(data, overrides, trust or []))) for data in stored]
    levels = numbers("--in-flight", in_flight)
    measured = show_measured(lambda status: measure_caching(pairs, levels, rounds, status), as_json)
    if out is not None:
        write_folder(out, caching_files(measured.facts["blocks"]))
        say_error(f"table and figure were written to {out}")


def caching_files(costs: Sequence[BlockCost]) -> dict[str, bytes]:
    """Return the table of savings of measured blocks and its figure, by path; no figure without a saving.

    The figure shows the share of `seconds` that a `warm` cache saves. It has a row for each environment and a
    panel for each number in flight. A band opens from the mean at rollout 0 to the interval of the change,
    which is paired within a run.
    """
    savings = list(compare_savings([cost for cost in costs if not cost.disturbed]))
    table = table_of("caching_savings", "", pandas.DataFrame(savings, columns=SAVINGS))
    treatments = {str(treatment): treatment for treatment in LOOKS}
    rows: dict[str, dict[int, Panel]] = {}
    for one in (one for one in savings if (one["cost"], one["cache"]) == ("seconds", "warm")):
        method, count = one["method"], one["runs"]
        low, high = (None if one[end] is None else one["before"] + one[end] for end in ("low", "high"))
        means = Estimate(one["before"], None, None, count), Estimate(one["after"], low, high, count)
        series = Series(method, [0, one["rollouts"]], means, treatments.get(method), one["by_run"])
        title = f"{one['environment']}, {one['in_flight']} in flight"
        panel = Panel(title, "training rollouts", "share of time saved", [])
        rows.setdefault(one["environment"], {}).setdefault(one["in_flight"], panel).series.append(series)
    figure = ReportFigure(table.name, "", "", [[*panels.values()] for panels in rows.values()])
    return table_files([table]) | (draw_files(figure) if rows else {})


def tokens(
    overrides: EngineOverrides = None,
    *,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the price list.")],
    usd_per_gpu_hour: Annotated[
        float,
        typer.Option(min=1e-6, max=1e6, help="USD of an hour of one GPU (without a GPU, of one core)."),
    ],
    contexts: Annotated[str, typer.Option(help="Prompt tokens.")] = "512,2048,8192,32768",
    in_flight: Annotated[str, typer.Option(help="Requests at the same time.")] = "1,8,32,64",
    repeats: Annotated[int, typer.Option(min=2, help="Times that each unit is measured.")] = 5,
    as_json: AsJson = False,
) -> None:
    """Measure what an uncached, a cached and an output token cost.

    The costs are GPU seconds and joules (without a GPU, CPU seconds) by prompt length and requests in flight.
    DIR/measured-MODEL.yaml is a price list for --prices and prices=, by requests in flight.

    Example: speedrunner bench tokens model=tiny-hybrid --usd-per-gpu-hour 0.05 --out prices
    """
    lengths, levels = numbers("--contexts", contexts), numbers("--in-flight", in_flight)
    setup = fitted_setup(overrides or [])
    with waiting_line() as status:
        units, notes = carry_out(lambda shutdown: measure_units(setup, lengths, levels, repeats, status))
    measured, prices = summarize(setup, units, usd_per_gpu_hour)
    file = f"measured-{setup.model_config.name}.yaml"
    text = f"# USD, seconds and joules of a million\n{write_yaml(to_builtins(prices))}"
    write_folder(out, {file: text.encode()})
    measured.notes += [*notes, f"The price list is {out / file}: speedrunner cost RUN --prices {out / file}"]
    say(measurement.as_json(measured) if as_json else measurement.as_text(measured))


def probe(
    what: Annotated[Literal["tools", "cache"], typer.Argument(metavar="tools|cache", help="What to test.")],
    overrides: EngineOverrides = None,
    count: Annotated[int, typer.Option(min=1, help="Tool calls in all.")] = 500,
    in_flight: Annotated[int, typer.Option(min=1, help="Tool calls at the same time.")] = 16,
    as_json: AsJson = False,
) -> None:
    """Test an engine's tool calls or its prefix cache.

    `tools` counts valid, invalid and truncated tool calls. Exit status 1: a call is not valid; a hosted model
    has no target. `cache` compares the cached tokens of one conversation with the maximum. Exit status
    1: they are less than 99 % (attention) or 97 % (hybrid models) of it.

    Example: speedrunner bench probe tools model=tiny-random --count 100
    """
    config = compose(overrides or [])
    model_config, cap_usd = choose_model_config(config), config.serving.spending_cap_usd
    if what == "cache":
        completions_api(model_config)

    async def measure(status: Status) -> Measurement:
        async with open_engine(model_config, config, status) as deployment:
            if what == "cache":
                return await probe_cache(deployment, status)
            return await measure_tools(deployment, count, in_flight, status, cap_usd)

    show_measured(measure, as_json)
