"""`speedrunner episode`: one episode, played by a model or by a person."""

from __future__ import annotations

from typing import Annotated

import typer

from speedrunner.cli.command import Overrides, carry_out
from speedrunner.cli.hand_play import play_by_hand
from speedrunner.cli.output import SafeConsole, say
from speedrunner.cli.run_summary import configure_logging
from speedrunner.config.compose import compose
from speedrunner.runs.setup import set_up
from speedrunner.runs.single_episode import show_episode


def episode(
    overrides: Overrides = None,
    human: Annotated[
        bool, typer.Option("--human", help="Play it yourself, with the actor's primitives. Needs no model.")
    ] = False,
    ids: Annotated[bool, typer.Option("--ids", help="Print the token ids too.")] = False,
) -> None:
    """Play one episode and print everything; --human: play it yourself.

    A model's episode is printed with the prompt, the grammar, and each answer and reply. With
    run.start_from=RUN[:VERSION], a stored policy plays it. Nothing is recorded.

    Examples:
      speedrunner episode env=babyai task.index=7 model=tiny-random
      speedrunner episode --human env=crafter task.index=7
    """
    config = compose(overrides or [])
    configure_logging(config)
    if human:
        play_by_hand(config, say)
        return
    setup, console = set_up(config), SafeConsole()
    carry_out(lambda drain: show_episode(setup, console, show_ids=ids))
