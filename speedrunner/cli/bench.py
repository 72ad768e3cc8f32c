"""`speedrunner bench`: this machine and its engine against stated targets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from speedrunner.cli.command import AsJson, EngineOverrides, carry_out, show_measured, waiting_line
from speedrunner.config.compose import compose
from speedrunner.config.named import actor_card
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


@app.command()
def sandbox(as_json: AsJson = False) -> None:
    """Measure what isolating skills costs, for about 30 seconds.

    Example: speedrunner bench sandbox --json
    """
    from speedrunner.measure.bench_sandbox import measure_sandbox

    show_measured(measure_sandbox, as_json)


@app.command()
def envs(as_json: AsJson = False) -> None:
    """Measure how fast the environments are and what memory they take, for about a minute.

    Memory is that of the simulator's own process (ScienceWorld's Java), or else of the Python process.

    Example: speedrunner bench envs --json
    """
    from speedrunner.measure.bench_envs import measure_envs

    show_measured(measure_envs, as_json)


@app.command()
def hosts(
    env: Annotated[
        list[str] | None,
        typer.Option("--env", help="babyai, crafter, scienceworld or another; may be repeated."),
    ] = None,
    counts: Annotated[str, typer.Option(help="Numbers of hosts, one after another.")] = "1,8,32,128",
    as_json: AsJson = False,
) -> None:
    """Start hosts, and measure their time, CPU time and memory until all have begun an episode.

    As many as the machine has no memory for are left out, and named. Memory counts shared pages once.

    Example: speedrunner bench hosts --env babyai --counts 1,32
    """
    from speedrunner.measure.bench_hosts import ENVS, measure_hosts

    several = numbers("--counts", counts)
    show_measured(lambda status: measure_hosts(status, env or ENVS, several), as_json)


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
    from speedrunner.measure.bench_cache import measure_cache
    from speedrunner.measure.engine import playing_setup

    levels = numbers("--in-flight", in_flight)
    setup = playing_setup(overrides or [])
    show_measured(lambda status: measure_cache(setup, levels, episodes, turns, status), as_json)


@app.command()
def rollout(
    overrides: EngineOverrides = None,
    in_flight: Annotated[int, typer.Option(min=1, help="Episodes at the same time.")] = 32,
    pairs: Annotated[int, typer.Option(min=1, help="Rollouts, each followed by its replay.")] = 5,
    client_in_flight: Annotated[
        int, typer.Option(min=1, help="Episodes at the same time, for the client alone.")
    ] = 64,
    as_json: AsJson = False,
) -> None:
    """Compare rollouts with a bare replay of their requests, and measure what the client takes by itself.

    Asked for are 0.90 (on a GPU 0.95) of the output tokens per second of the replay, 250 turns per CPU
    second of the client, and that it leaves no thread, task or process behind.

    Example: speedrunner bench rollout model=tiny-random --pairs 3
    """
    from speedrunner.measure.bench_rollout import measure_rollout
    from speedrunner.measure.engine import playing_setup

    setup = playing_setup(overrides or [])
    show_measured(lambda status: measure_rollout(setup, in_flight, pairs, client_in_flight, status), as_json)


@app.command()
def client(
    overrides: EngineOverrides = None,
    in_flight: Annotated[
        str, typer.Option(help="Conversations at the same time, one level after another.")
    ] = "1,32,128,512",
    tokens: Annotated[
        str, typer.Option(help="Tokens of a prompt; the shortest with each number in flight.")
    ] = "2000,20000,100000,250000",
    as_json: AsJson = False,
) -> None:
    """Measure the client's CPU time per turn, against a server without a model.

    At most 3 ms are asked for at any level. Only the tokenizer and the tool format of the model are used.

    Example: speedrunner bench client model=tiny --in-flight 1,32 --tokens 2000,100000
    """
    from speedrunner.measure.bench_client import measure_client

    card = actor_card(compose(overrides or []))
    several, lengths = numbers("--in-flight", in_flight), numbers("--tokens", tokens)
    show_measured(lambda status: measure_client(card, several, lengths, status), as_json)


@app.command()
def accounts(
    overrides: EngineOverrides = None,
    requests: Annotated[int, typer.Option(min=1, help="Requests in all.")] = 2000,
    in_flight: Annotated[int, typer.Option(min=1, help="Requests at the same time.")] = 32,
    as_json: AsJson = False,
) -> None:
    """Send requests that are answered, disconnect, time out, overflow, are preempted, refused and retried.

    Then the ledger is compared with the engine's counters: to the token after the first half of the requests,
    in which nothing is cut off, and within the bound of what is cut off at the end. A server of our own is
    given a small cache and a short queue for it; one that runs must be idle.

    Example: speedrunner bench accounts model=tiny-random --requests 500
    """
    from speedrunner.measure.bench_accounts import measure_accounts

    config = compose(overrides or [])
    card = actor_card(config)
    show_measured(lambda status: measure_accounts(card, config, requests, in_flight, status), as_json)


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
    from speedrunner.measure.engine import playing_setup
    from speedrunner.measure.gpu_bench import play_steps
    from speedrunner.measure.gpu_pages import PAGE, as_text, bench_command
    from speedrunner.measure.gpu_plan import bench_of, steps_of
    from speedrunner.measure.gpu_record import make_folder, open_record, subject_of
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
