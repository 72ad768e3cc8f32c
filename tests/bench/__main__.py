"""`python -m tests.bench`: measure the parts of SpeedRunner against the targets that developers keep to."""

from __future__ import annotations

from typing import Annotated

import typer

from envs import EnvironmentFault
from serving.errors import ServingError
from speedrunner.cli.bench_command import numbers
from speedrunner.cli.command import AsJson, EngineOverrides, SweepRuns, show_measured
from speedrunner.config.compose import compose
from speedrunner.config.named import actor_model_config
from speedrunner.config.schema import InvalidConfig
from speedrunner.workers.env_worker import WorkerError
from speedrunner.workers.sandbox.settings import SandboxError

app = typer.Typer(
    help="Acceptance checks for developers. Exit status 1: a target is missed.", add_completion=False
)

SIMULATED = ("model=qwen3.5-27b", "model.load_format=dummy")
"""The model that `scaling` and `job` simulate."""


@app.command()
def reconciliation(
    overrides: EngineOverrides = None,
    requests: Annotated[int, typer.Option(min=1, help="Requests in all.")] = 2000,
    in_flight: Annotated[int, typer.Option(min=1, help="Requests at the same time.")] = 32,
    as_json: AsJson = False,
) -> None:
    """Compare the ledger with the engine's counters while requests fail in every way.

    A server that is started gets a small cache and a short queue; a running one must be idle.
    """
    from tests.bench.reconciliation_bench import measure_reconciliation

    config = compose(overrides or [])
    model_config = actor_model_config(config)
    show_measured(
        lambda status: measure_reconciliation(model_config, config, requests, in_flight, status), as_json
    )


@app.command()
def client(
    overrides: EngineOverrides = None,
    in_flight: Annotated[
        str, typer.Option(help="Conversations at the same time, by level.")
    ] = "1,32,128,512",
    tokens: Annotated[str, typer.Option(help="Tokens of a prompt, by level.")] = "2000,20000,100000,250000",
    as_json: AsJson = False,
) -> None:
    """Measure the client's CPU time per turn against a server without a model.

    Only the tokenizer and the tool format of the model are used.
    """
    from tests.bench.client_cpu import measure_client

    model_config = actor_model_config(compose(overrides or []))
    several, lengths = numbers("--in-flight", in_flight), numbers("--tokens", tokens)
    show_measured(lambda status: measure_client(model_config, several, lengths, status), as_json)


@app.command()
def workers(
    env: Annotated[list[str] | None, typer.Option("--env", help="An environment; may be repeated.")] = None,
    counts: Annotated[str, typer.Option(help="Numbers of workers, one after another.")] = "1,8,32,128",
    as_json: AsJson = False,
) -> None:
    """Measure time, CPU time and memory until workers have started an episode.

    Numbers for which the memory is too small are left out, and named.
    """
    from tests.bench.workers import ENVS, measure_workers

    several = numbers("--counts", counts)
    show_measured(lambda status: measure_workers(status, env or ENVS, several), as_json)


@app.command()
def scaling(
    overrides: EngineOverrides = None,
    env: Annotated[list[str] | None, typer.Option("--env", help="An environment; may be repeated.")] = None,
    in_flight: Annotated[str, typer.Option(help="Episodes at the same time, by level.")] = "1,16,64",
    calls: Annotated[int, typer.Option(min=1, help="Requests of each episode.")] = 30,
    replicas: Annotated[int, typer.Option(min=1, help="H200 replicas of the simulated engine.")] = 1,
    speed: Annotated[float, typer.Option(min=0.1, help="How many times as fast they are.")] = 1.0,
    as_json: AsJson = False,
) -> None:
    """Measure CPU time and memory of episodes in flight, against an engine that is as fast as H200s.

    Client, workers and environments are real. The engine's speed is an assumption (docs/scaling.md).
    """
    from tests.bench.scaling import measure_scaling
    from tests.bench.workers import ENVS

    several = numbers("--in-flight", in_flight)
    given = [*SIMULATED, *(overrides or [])]
    show_measured(
        lambda status: measure_scaling(given, env or ENVS, several, calls, replicas, speed, status),
        as_json,
    )


@app.command()
def job(
    what: SweepRuns,
    in_flight: Annotated[int, typer.Option(min=1, help="Episodes at the same time, over all runs.")] = 64,
    replicas: Annotated[int, typer.Option(min=1, help="H200 replicas of the simulated engine.")] = 1,
    speed: Annotated[float, typer.Option(min=0.1, help="How many times as fast they are.")] = 1.0,
    as_json: AsJson = False,
) -> None:
    """Play a sweep in one process as a job does, against an engine as in `scaling`."""
    from tests.bench.scaling import measure_job

    given = [*what, *SIMULATED]
    show_measured(lambda status: measure_job(given, in_flight, replicas, speed, status), as_json)


@app.command()
def sandbox(as_json: AsJson = False) -> None:
    """Measure the cost of isolating skills, for about 30 seconds."""
    from tests.bench.sandbox import measure_sandbox

    show_measured(measure_sandbox, as_json)


@app.command()
def interpreter(
    episodes: Annotated[int, typer.Option(min=1, help="Episodes of the history.")] = 1000,
    megabytes: Annotated[float, typer.Option(min=0.01, help="Size of an episode in MB.")] = 2.0,
    as_json: AsJson = False,
) -> None:
    """Time the functions of the inducer's interpreter over a long history.

    The history is written to the temporary folder first: 2 GB by default.
    """
    from tests.bench.interpreter_bench import measure_interpreter

    size = round(megabytes * 1e6)
    show_measured(lambda status: measure_interpreter(status, episodes, size), as_json)


def main() -> None:
    """Run a check. Errors for people are one line and exit status 1."""
    try:
        app()
    except (EnvironmentFault, WorkerError, InvalidConfig, SandboxError, ServingError) as error:
        raise SystemExit(f"error: {error}") from None


if __name__ == "__main__":
    main()
