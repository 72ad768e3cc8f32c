"""`speedrunner bench probe`: test an engine's tool calls and prefix cache."""

from __future__ import annotations

from typing import Annotated

import typer

from speedrunner.bench.cache_probe import measure_cache
from speedrunner.bench.tool_probe import measure_tools
from speedrunner.cli.command import AsJson, EngineOverrides, show_measured
from speedrunner.config.compose import compose
from speedrunner.runs.setup import actor_model_config


def tools(
    overrides: EngineOverrides = None,
    count: Annotated[int, typer.Option(min=1, help="Probes in all.")] = 500,
    in_flight: Annotated[int, typer.Option(min=1, help="Requests at the same time.")] = 16,
    as_json: AsJson = False,
) -> None:
    """Count valid, invalid and truncated tool calls of an engine.

    Exit status 1: a call is not valid. A hosted model has no such target.

    Example: speedrunner bench probe tools model=tiny-random --count 100
    """
    config = compose(overrides or [])
    model_config = actor_model_config(config)
    show_measured(lambda status: measure_tools(model_config, config, count, in_flight, status), as_json)


def cache(
    overrides: EngineOverrides = None,
    turns: Annotated[int, typer.Option(min=2, help="Requests of the conversation.")] = 8,
    as_json: AsJson = False,
) -> None:
    """Compare cached tokens of one conversation with the maximum.

    Exit status 1: they are less than 99 % (attention) or 97 % (hybrid models) of it.

    Example: speedrunner bench probe cache model=tiny-random
    """
    config = compose(overrides or [])
    show_measured(lambda status: measure_cache(actor_model_config(config), config, turns, status), as_json)
