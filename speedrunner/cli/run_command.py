"""`speedrunner run`: play one run, or evaluate a stored policy."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from speedrunner.cli.command import DryRun, Overrides, Trust, carry_out
from speedrunner.cli.output import SafeConsole, say
from speedrunner.config.compose import compose
from speedrunner.config.grid import grid_of
from speedrunner.config.schema import Config, InvalidConfig, TaskConfig

START, ROLLOUTS = "run.start_from", "run.rollouts"


def run(overrides: Overrides = None, trust: Trust = None, dry_run: DryRun = False) -> None:
    """Play a run, resume it, or evaluate a stored policy.

    Ctrl-C or SIGTERM waits up to run.drain_s seconds for running episodes; a second signal stops at once.
    Rerun the same command to resume. With experiment=NAME, the settings choose one run of an experiment. A
    larger run.rollouts extends a run that is there; what was played stays as it is.

    run.start_from=RUN[:VERSION] run.rollouts=0 evaluates a stored policy without training. All other settings
    are that run's own unless given, such as another env=, model= or run.test_episodes=. The results are in a
    separate run, RUN-eval-vVERSION-ENV-MODEL by default. To resume it, name it with run.dir=.

    Examples:
      speedrunner run env=babyai method=speedrunner model=tiny-random run.rollouts=20
      speedrunner run run.start_from=runs/demo:2 run.rollouts=0 run.test_episodes=10
    """
    config = _choose_config(overrides or [], trust or [])
    # Imported late, as the engine's client takes seconds: a wrong key is refused at once.
    from speedrunner.cli.run_summary import KEPT, configure_logging, describe_plan, print_runs
    from speedrunner.runs import run as run_machinery
    from speedrunner.runs.outline import outline_runs
    from speedrunner.runs.setup import set_up

    configure_logging(config)
    if config.task != TaskConfig():
        raise InvalidConfig("task.name and task.index work only with `episode`; a run plays its split")
    setup = set_up(config)
    if dry_run:
        say(f"{config.run.dir}:", *describe_plan(outline_runs([(setup, None)])))
        return
    console = SafeConsole()
    reconciliations = carry_out(
        lambda shutdown: run_machinery.run(setup, console, shutdown), console.say, KEPT, config.run.drain_s
    )
    print_runs([setup], console, reconciliations)


def _choose_config(given: Sequence[str], trust: Sequence[str]) -> Config:
    """Return the configuration of a run, of a run of an experiment, or of an evaluation.

    Raises `InvalidConfig`; `RunDirectoryError` if the run or the policy to evaluate does not exist.
    """
    if any(each.startswith("experiment=") for each in given):
        grid = grid_of(given)
        asked = [each for each in grid.runs() if each.asked]
        if len(asked) != 1:
            raise InvalidConfig(
                f"{len(asked)} runs of {grid.name} match: play them with"
                f" `speedrunner sweep {shlex.join(given)}`, or choose one, such as"
                f" {' '.join(asked[0].overrides)}"
            )
        return asked[0].config
    start = [each for each in given if each.startswith((f"{START}=", f"{ROLLOUTS}="))]
    if {each.partition("=")[0] for each in start} == {START, ROLLOUTS}:
        chosen = compose(start).run
        if chosen.start_from is not None and chosen.rollouts == 0:
            from speedrunner.runs.stored_setup import evaluation_config

            others = [each for each in given if each not in start]
            return evaluation_config(chosen.start_from, others, trust)
    if trust:
        raise InvalidConfig(
            f"--trust {trust[0]} works only in evaluations of a stored policy: add {START}=RUN:VERSION"
            f" {ROLLOUTS}=0"
        )
    return compose(given)
