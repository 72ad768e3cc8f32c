"""`speedrunner bench rollout | gpu`: compare this machine and its engine with stated targets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from serving.gpu_check import require_gpus
from serving.options import running_endpoint
from serving.sizing import fit
from speedrunner.bench.engine import open_engine, playing_setup
from speedrunner.bench.gpu.gpu_pages import PAGE, as_text, bench_command
from speedrunner.bench.gpu.steps import Bench, as_served, play_steps, steps_of
from speedrunner.bench.measurement import Measurement
from speedrunner.bench.record import make_folder, open_record, subject_of
from speedrunner.bench.rollouts import measure_rollouts
from speedrunner.cli.command import AsJson, EngineOverrides, carry_out, show_measured
from speedrunner.cli.output import say, say_error, waiting_line
from speedrunner.config.schema import InvalidConfig
from speedrunner.plain.console import Status
from speedrunner.runs.setup import Setup
from speedrunner.store.run_lock import RunLock


def numbers(option: str, text: str) -> list[int]:
    """Return several numbers written as `1,4,16`, sorted. Raises `InvalidConfig`."""
    try:
        found = sorted({int(each) for each in text.split(",")})
    except ValueError:
        found = [0]
    if found[0] < 1:
        raise InvalidConfig(f"{option} {text}: write numbers separated by commas, such as 1,4,16")
    return found


def fitted_setup(overrides: list[str]) -> Setup:
    """Return a setup; its model is fitted to the GPUs here, or to a running server. Raises `InvalidConfig`,
    `InvalidModelConfig`, `ServerFailed`."""
    setup = playing_setup(overrides)
    if setup.config.serving.url is None:
        (gpus,) = require_gpus([setup.model_config], say_error)
        setup = replace(setup, model_config=fit(setup.model_config, gpus))
    elif endpoint := running_endpoint(setup.model_config, setup.config.serving):
        setup = replace(setup, model_config=as_served(setup.model_config, endpoint))
    return setup


def rollout(
    overrides: EngineOverrides = None,
    in_flight: Annotated[str, typer.Option(help="Episodes at the same time, such as 1,4,16.")] = "32",
    pairs: Annotated[int, typer.Option(min=1, help="Rollouts of each size, each with its replay.")] = 5,
    as_json: AsJson = False,
) -> None:
    """Compare rollouts with a bare replay and an ideal cache.

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
            return await measure_rollouts(deployment, setup, levels, pairs, status)

    show_measured(measure, as_json)


def gpu(
    overrides: EngineOverrides = None,
    *,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the record.", show_default=False)],
    minutes: Annotated[float, typer.Option(min=1.0, help="Play the steps that fit into this time.")] = 40.0,
    only: Annotated[str, typer.Option(help="Play only these steps, such as tools,utilisation.")] = "",
) -> None:
    """Run all benchmarks of a model on this machine, in resumable steps.

    The steps are start, capacity, tool calls, prefix cache, utilisation and rollouts. Each takes at most 8
    minutes and writes its result at once. Rerun the same command to continue and to repeat failed steps.
    DIR/record.md has the tables for docs/gpu.md. Exit status 1: a step failed, or a target is missed.

    Example: speedrunner bench gpu model=qwen3.5-27b model.load_format=dummy --minutes 40 --out records/27b
    """
    given = overrides or []
    setup = fitted_setup(given)
    steps = steps_of(setup, [name for name in only.split(",") if name])
    make_folder(out)
    with RunLock(out / "lock"), waiting_line() as status:
        record = open_record(out, subject_of(setup, given))
        carry_out(
            lambda shutdown: play_steps(Bench(setup, record, status), steps, minutes, shutdown),
            kept=f"; finished steps are in {out}. Rerun the same command to continue",
        )
    say(as_text(record))
    if left := [each.name for each in steps if not record.has_succeeded(each.name)]:
        chosen = [f"--only={only}"] if only else []
        again = bench_command(record, *chosen, f"--minutes={minutes:g}", f"--out={out}")
        say(f"Remaining steps: {', '.join(left)}\nTo continue: {again}")
    say(f"The tables were written to {out / PAGE}")
    if any(step.is_bad for step in record.steps.values()):
        raise typer.Exit(1)
