"""`speedrunner probe`: what an engine does with tool calls, and what its prefix cache gives."""

from __future__ import annotations

from typing import Annotated

import typer

from speedrunner.cli.command import AsJson, EngineOverrides, show_measured
from speedrunner.config.compose import compose
from speedrunner.config.named import actor_card

app = typer.Typer(help="Show what an engine really does.", no_args_is_help=True)


@app.command()
def tools(
    overrides: EngineOverrides = None,
    count: Annotated[int, typer.Option(min=1, help="Probes in all.")] = 500,
    in_flight: Annotated[int, typer.Option(min=1, help="Requests at the same time.")] = 16,
    thinking: Annotated[
        bool | None,
        typer.Option("--thinking/--no-thinking", help="Let the model think; by default as the card's actor."),
    ] = None,
    built_in: Annotated[
        bool, typer.Option("--built-in", help="Let vLLM's own tool calls answer, for comparison.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Send a battery of tool-call probes, and count the calls that are valid, invalid, and cut.

    The exit status is 1 when one is not valid. With --built-in or a hosted model there is no such target.

    Example: speedrunner probe tools model=tiny-random --count 100
    """
    from speedrunner.bench.tool_probe import measure_tools, thinking_role, with_built_in_calls

    config = compose(overrides or [])
    card = actor_card(config)
    if built_in:
        card = with_built_in_calls(card)
    role = thinking_role(card, thinking)
    show_measured(lambda status: measure_tools(card, config, role, count, in_flight, status), as_json)


@app.command()
def cache(
    overrides: EngineOverrides = None,
    turns: Annotated[int, typer.Option(min=2, help="Requests of the conversation.")] = 8,
    as_json: AsJson = False,
) -> None:
    """Send known conversations, and compare the cached tokens with the most that the cache can give.

    The exit status is 1 when that is less than 99 % (attention) or 97 % (hybrid models).

    Example: speedrunner probe cache model=tiny-random
    """
    from speedrunner.bench.cache_probe import measure_cache_use

    config = compose(overrides or [])
    show_measured(lambda status: measure_cache_use(actor_card(config), config, turns, status), as_json)
