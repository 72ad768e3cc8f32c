"""`speedrunner run` and `speedrunner sweep`: play one run, or the runs of an experiment or a list."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from speedrunner.cli.command import DryRun, Overrides, PriceList, RunsFolder, Trust, run_list
from speedrunner.cli.output import say
from speedrunner.cluster.cluster_config import cluster_of
from speedrunner.config.compose import compose
from speedrunner.config.grid import AT_ONCE, Grid, grid_of
from speedrunner.config.schema import Config, InvalidConfig, TaskConfig

# The engine's client takes seconds to import, so functions import it late: a wrong key is refused at once.

START, ROLLOUTS, SEED = "run.start_from", "run.rollouts", "run.seed"


def run(overrides: Overrides = None, trust: Trust = None, dry_run: DryRun = False) -> None:
    """Play a run, resume it, or evaluate a stored policy.

    Ctrl-C, SIGTERM or a closed terminal waits up to run.drain_s seconds for running episodes; a second signal
    stops at once.
    Rerun the same command to resume. With experiment=NAME, the settings choose one run of an experiment.
    run.seed=0,1,2 plays three runs, a folder each.

    run.start_from=RUN[:VERSION] run.rollouts=0 evaluates a stored policy without training. All other settings
    are that run's own unless given, such as another env=, model= or run.test_episodes=. The results are in a
    separate run, RUN-eval-vVERSION-ENV-MODEL by default. To resume it, name it with run.dir=.

    Examples:
      speedrunner run env=babyai method=speedrunner model=tiny-random run.rollouts=20
      speedrunner run run.start_from=runs/demo:2 run.rollouts=0 run.test_episodes=10
    """
    configs = _separate([_choose_config(given, trust or []) for given in _split_seeds(overrides or [])])
    from speedrunner.cli.run_summary import configure_logging, play_and_print
    from speedrunner.runs.planned_runs import PlannedRun, describe_plan
    from speedrunner.runs.setup import set_up

    configure_logging(configs[0])
    if configs[0].task != TaskConfig():
        raise InvalidConfig("task.name and task.index work only with `episode`; a run plays its split")
    runs = [PlannedRun(set_up(config)) for config in configs]
    if dry_run:
        say(f"{', '.join(run.path for run in runs)}:", *describe_plan(runs))
    else:
        play_and_print(runs, configs[0].run.in_flight if len(runs) > 1 else None)


def _split_seeds(given: Sequence[str]) -> list[list[str]]:
    """Return the settings of each seed of `run.seed=0,1,2`."""
    seeds = next((text.removeprefix(f"{SEED}=") for text in given if text.startswith(f"{SEED}=")), "")
    if "," not in seeds:
        return [[*given]]
    others = [text for text in given if not text.startswith(f"{SEED}=")]
    return [[*others, f"{SEED}={seed}"] for seed in seeds.split(",")]


def _separate(configs: list[Config]) -> list[Config]:
    """Add the seed to the runs' directories where they are equal. Raises `InvalidConfig` if seeds are."""
    if len({config.run.dir for config in configs}) == len(configs):
        return configs
    if len({config.run.seed for config in configs}) < len(configs):
        raise InvalidConfig(f"{SEED} names a seed twice")
    return [config.with_run(dir=f"{config.run.dir}-seed{config.run.seed}") for config in configs]


def _choose_config(given: Sequence[str], trust: Sequence[str]) -> Config:
    """Return the configuration of a run, of a run of an experiment, or of an evaluation.

    Raises `InvalidConfig`; `RunDirectoryError` if the run or the policy to evaluate does not exist.
    """
    if any(setting.startswith("experiment=") for setting in given):
        grid = grid_of(given)
        asked = [run for run in grid.runs() if run.asked]
        if len(asked) != 1:
            raise InvalidConfig(
                f"{len(asked)} runs of {grid.name} match: play them with"
                f" `speedrunner sweep {shlex.join(given)}`, or choose one, such as"
                f" {' '.join(asked[0].overrides)}"
            )
        return asked[0].config
    start = [setting for setting in given if setting.startswith((f"{START}=", f"{ROLLOUTS}="))]
    if {setting.partition("=")[0] for setting in start} == {START, ROLLOUTS}:
        chosen = compose(start).run
        if chosen.start_from is not None and chosen.rollouts == 0:
            from speedrunner.runs.stored_setup import evaluation_config

            others = [setting for setting in given if setting not in start]
            return evaluation_config(chosen.start_from, others, trust)
    if trust:
        raise InvalidConfig(
            f"--trust {trust[0]} works only in evaluations of a stored policy: add {START}=RUN:VERSION"
            f" {ROLLOUTS}=0"
        )
    return compose(given)


def sweep(
    what: Annotated[
        list[str] | None,
        run_list(
            "experiment=NAME (scale=paper or smoke), or FILE: YAML, a list of runs. A setting that"
            " some of the runs have (method=react,asi) chooses among them; any other applies to all."
            " run.seed=0,1 replaces their seeds."
            " cluster=NAME (a file of configs/cluster/, or a path) submits them to Slurm as jobs;"
            " cluster.KEY=VALUE changes one of its keys."
        ),
    ] = None,
    folder: RunsFolder = None,
    at_once: Annotated[
        int,
        typer.Option("--in-flight", min=1, help="Episodes at the same time, over all runs, or in each job."),
    ] = AT_ONCE,
    part: Annotated[
        str | None,
        typer.Option(metavar="K/N", help="Play the K-th of N parts of the runs, as one job does."),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Number of Slurm jobs. Default: as many as the runs can keep busy."),
    ] = None,
    power: Annotated[
        Path | None,
        typer.Option(
            metavar="RUNS",
            help="Play nothing: print the seeds that each claim needs, by a pilot in this folder.",
        ),
    ] = None,
    prices: PriceList = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the Slurm jobs as one JSON object.")] = False,
    dry_run: DryRun = False,
) -> None:
    """Play the runs of an experiment or a list, here or as Slurm jobs.

    Runs of one model share a server. Finished runs are not played again, also where another experiment has
    played them. A run that stops does not stop the others. Rerun the same command to resume. method=NAME
    selects exactly one method or variant of an experiment, such as speedrunner-no-interpreter.

    With cluster=NAME, each job serves one model and plays some of its runs. A job that is preempted, or whose
    time is over, starts again and resumes. --dry-run prints the jobs on standard error and their scripts on
    standard output.

    Examples:
      speedrunner sweep experiment=main scale=smoke
      speedrunner sweep experiment=main scale=smoke cluster=cpu --dry-run
    """
    what = what or []
    if power is not None:
        from speedrunner.results.power import power_lines  # pandas and scipy take seconds to import

        say(*power_lines(power, prices))
        return
    if prices is not None:
        raise InvalidConfig("--prices is for --power: a run's own list is set by prices.KEY=VALUE")
    if any(setting.startswith(("cluster=", "cluster.")) for setting in what):
        if part is not None:
            raise InvalidConfig("--part is what a Slurm job plays: leave it out, or leave out cluster=")
        site = cluster_of(what)
        grid = grid_of(site.others, folder)
        grid.runs()  # raises before the late import
        from speedrunner.cli.slurm_jobs import submit_jobs

        submit_jobs(site, grid, folder, at_once, jobs, dry_run=dry_run, as_json=as_json)
        return
    if jobs is not None or as_json:
        raise InvalidConfig("--jobs and --json are for Slurm jobs: name a cluster with cluster=NAME")
    _sweep_here(grid_of(what, folder), at_once, part, dry_run=dry_run)


def _sweep_here(grid: Grid, at_once: int, part: str | None, *, dry_run: bool) -> None:
    """Play the runs of a grid, or one of their parts, on this machine; or print what they would do."""
    listed = grid.runs()
    from speedrunner.cli.run_summary import configure_logging, play_and_print
    from speedrunner.runs.planned_runs import describe_plan, parse_part, set_up_runs, split_into_parts

    runs = set_up_runs(listed)
    log_prefix = ""
    if part is not None:
        number, of = parse_part(part)
        runs = split_into_parts(runs, of, at_once)[number - 1]
        log_prefix = f"part{number}of{of}_"
    configure_logging(runs[0].setup.config)
    if dry_run:
        say(*describe_plan(runs))
        return
    from speedrunner.results.analysis_plan import write_plan  # pandas takes long to import

    write_plan(grid.name, [run.config for run in listed])
    play_and_print(runs, at_once, log_prefix)
