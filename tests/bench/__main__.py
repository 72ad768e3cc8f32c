"""`python -m tests.bench`: compare the ledger with an engine's counters under faults."""

from __future__ import annotations

from typing import Annotated

import typer

from envs import EnvironmentFault
from serving.errors import ServingError
from speedrunner.cli.command import AsJson, EngineOverrides, show_measured
from speedrunner.config.compose import compose
from speedrunner.config.named import actor_model_config
from speedrunner.config.schema import InvalidConfig
from speedrunner.workers.env_worker import WorkerError
from speedrunner.workers.sandbox.settings import SandboxError

app = typer.Typer(
    help="Acceptance checks for developers. Exit status 1: a target is missed.", add_completion=False
)


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


def main() -> None:
    """Run a check. Errors for people are one line and exit status 1."""
    try:
        app()
    except (EnvironmentFault, WorkerError, InvalidConfig, SandboxError, ServingError) as error:
        raise SystemExit(f"error: {error}") from None


if __name__ == "__main__":
    main()
