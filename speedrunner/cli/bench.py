"""`speedrunner bench`: this machine and its engine against stated targets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from speedrunner.cli.command import (
    AsJson,
    EngineOverrides,
    carry_out,
    refuse_moved,
    show_measured,
    waiting_line,
)
from speedrunner.config.schema import InvalidConfig
from speedrunner.console import visible

app = typer.Typer(
    help="Measure this machine against stated targets; the exit status is 1 when one is missed.",
    no_args_is_help=True,
)


def numbers(option: str, text: str) -> list[int]:
    """Several numbers, as `1,4,16`. Raises `InvalidConfig`."""
    try:
        found = sorted({int(each) for each in text.split(",")})
    except ValueError:
        found = [0]
    if found[0] < 1:
        raise InvalidConfig(f"{option} {text}: write numbers with commas, such as 1,4,16")
    return found


MOVED = {
    **{name: f"python -m tests.bench {name}" for name in ("accounts", "client", "hosts", "sandbox")},
    "envs": "python -m tests.upstream_envs",
}
"""Acceptance checks for developers, which are in a checkout only."""


for moved_name, new_command in MOVED.items():
    refuse_moved(app, moved_name, f"speedrunner bench {moved_name}", new_command)


@app.command()
def cache(
    overrides: EngineOverrides = None,
    episodes: Annotated[
        int, typer.Option(min=1, help="Episodes of each level; two for each one in flight are enough.")
    ] = 16,
    turns: Annotated[int, typer.Option(min=2, help="Most requests of an episode.")] = 12,
    in_flight: Annotated[
        str, typer.Option(help="Episodes at the same time, one level after another.")
    ] = "1,4,16",
    as_json: AsJson = False,
) -> None:
    """Play episodes, and compare their cached tokens with the most that the cache can give.

    At least 99 % are asked for (attention), or 97 % (hybrid models). The last level is played again with
    admission and without, in turn; with a server of our own also with a cache that holds half of its
    conversations. Tokens per second are those of a shared machine: compare them within one table only.

    Example: speedrunner bench cache model=tiny-random --in-flight 1,8
    """
    from speedrunner.bench.cache_use import measure_cache
    from speedrunner.bench.engine import playing_setup

    levels = numbers("--in-flight", in_flight)
    setup = playing_setup(overrides or [])
    show_measured(lambda status: measure_cache(setup, levels, episodes, turns, status), as_json)


@app.command()
def rollout(
    overrides: EngineOverrides = None,
    in_flight: Annotated[int, typer.Option(min=1, help="Episodes at the same time.")] = 32,
    pairs: Annotated[int, typer.Option(min=1, help="Rollouts, each followed by its replay.")] = 5,
    as_json: AsJson = False,
) -> None:
    """Compare rollouts with a bare replay of their requests; show CPU time, memory and power.

    The target is 0.90 (on a GPU 0.95) of the output tokens per second of the replay.

    Example: speedrunner bench rollout model=tiny-random --pairs 3
    """
    from speedrunner.bench.engine import playing_setup
    from speedrunner.bench.rollout_speed import measure_rollout

    setup = playing_setup(overrides or [])
    show_measured(lambda status: measure_rollout(setup, in_flight, pairs, status), as_json)


@app.command()
def gpu(
    overrides: EngineOverrides = None,
    *,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the record.", show_default=False)],
    minutes: Annotated[
        float, typer.Option(min=0.0, help="Start no step that may not end in this time.")
    ] = 40.0,
) -> None:
    """Make the whole record of a model on this machine, in pieces if need be.

    Each step takes at most 8 minutes and writes its result at once: start, capacity, tool calls, prefix
    cache, rollouts, long prompts, grammar, FP8. The same command continues the record and tries failed steps
    again. DIR/record.md has the tables for docs/gpu.md. The exit status is 1 if a step has failed or a target
    is missed.

    Example: speedrunner bench gpu model=qwen3.5-27b model.load_format=dummy --minutes 40 --out records/27b
    """
    from dataclasses import replace

    from serving.gpu_check import require_gpus
    from serving.sizing import fit
    from speedrunner.bench.engine import playing_setup
    from speedrunner.bench.gpu.pages import PAGE, as_text, bench_command
    from speedrunner.bench.gpu.record import make_folder, open_record, subject_of
    from speedrunner.bench.gpu.schedule import bench_of, steps_of
    from speedrunner.bench.gpu.session import play_steps
    from speedrunner.store.lock import RunLock

    given = overrides or []
    setup = playing_setup(given)
    if setup.config.serving.url is None:  # a server of ours takes what its GPUs have room for
        (gpus,) = require_gpus([setup.card], lambda line: typer.echo(visible(line), err=True))
        setup = replace(setup, card=fit(setup.card, gpus))
    make_folder(out)
    with RunLock(out / "lock"), waiting_line() as status:
        record = open_record(out, subject_of(setup, given))
        again = bench_command(record, f"--minutes={minutes:g}", f"--out={out}")
        bench = bench_of(setup, record, status)
        left = carry_out(
            lambda drain: play_steps(bench, steps_of(setup, given), minutes, drain),
            lambda line: typer.echo(visible(line), err=True),
            f"; finished steps are in {out}, and the same command continues",
        )
    typer.echo(visible(as_text(record)))
    if left:
        typer.echo("\nLeft, with the minutes to allow for each:")
        for each in left:
            typer.echo(visible(f"  {each.step} ({each.needed_s / 60:.1f}): {each.reason}"))
        typer.echo(visible(f"To continue: {again}"))
    typer.echo(visible(f"\nThe tables are in {out / PAGE}"))
    if any(step.has_failed for step in record.steps.values()):
        raise typer.Exit(1)
