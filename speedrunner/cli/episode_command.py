"""`speedrunner episode`: play one episode."""

from __future__ import annotations

from speedrunner.cli.command import Overrides, carry_out
from speedrunner.cli.output import SafeConsole
from speedrunner.cli.run_summary import configure_logging
from speedrunner.config.compose import compose
from speedrunner.runs.setup import set_up
from speedrunner.runs.single_episode import show_episode


def episode(overrides: Overrides = None) -> None:
    """Play one episode and print everything.

    It is printed with the prompt, the grammar, and each answer and reply. With
    run.start_from=RUN[:VERSION], a stored policy plays it. Nothing is recorded.

    Example: speedrunner episode env=babyai task.index=7 model=tiny-random
    """
    config = compose(overrides or [])
    configure_logging(config)
    setup, console = set_up(config), SafeConsole()
    carry_out(lambda shutdown: show_episode(setup, console))
