"""`speedrunner sweep`: play the runs of an experiment or a list."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from speedrunner.cli.command import DryRun, PriceList, RunsFolder, carry_out, run_list
from speedrunner.cli.output import SafeConsole, say
from speedrunner.cluster.cluster_config import cluster_of
from speedrunner.config.grid import AT_ONCE, grid_of
from speedrunner.config.schema import InvalidConfig


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
        typer.Option(
            metavar="K/N", help="Play the K-th of N parts of the runs, as one job does.", show_default=False
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of Slurm jobs. Default: as many as the runs can keep busy.",
            show_default=False,
        ),
    ] = None,
    power: Annotated[
        Path | None,
        typer.Option(
            metavar="RUNS",
            help="Play nothing: print the seeds that each claim needs, by a pilot in this folder.",
            show_default=False,
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
    if power is not None:
        options = {"--json": as_json, "--dry-run": dry_run, "--dir": folder, "--part": part, "--jobs": jobs}
        if others := [*(what or []), *(name for name, given in options.items() if given)]:
            raise InvalidConfig(f"--power reads finished runs and plays none: leave out {' '.join(others)}")
        from speedrunner.results.power import power_lines  # pandas and scipy take seconds to import

        say(*power_lines(power, prices))
        return
    if prices is not None:
        raise InvalidConfig("--prices is for --power: a run's own list is set by prices.KEY=VALUE")
    what = what or []
    site = None
    if any(each.startswith(("cluster=", "cluster.")) for each in what):
        if part is not None:
            raise InvalidConfig("--part is what a Slurm job plays: leave it out, or leave out cluster=")
        site = cluster_of(what)
        what = site.others
    elif jobs is not None or as_json:
        raise InvalidConfig("--jobs and --json are for Slurm jobs: name a cluster with cluster=NAME")
    grid = grid_of(what, folder)
    found = grid.runs()
    # Imported late, as the engine's client takes seconds: a wrong key is refused at once.
    if site is not None:
        from speedrunner.cli.slurm_jobs import submit_jobs

        submit_jobs(site, grid, folder, at_once, jobs, dry_run=dry_run, as_json=as_json)
        return
    from speedrunner.cli.run_summary import KEPT, configure_logging, describe_plan, has_processes, print_runs
    from speedrunner.cluster.estimate import estimate
    from speedrunner.runs.executor import RunStopped
    from speedrunner.runs.outline import outline_runs
    from speedrunner.runs.parts import parsed_part, parts
    from speedrunner.runs.sweep import sweep as play_all
    from speedrunner.runs.sweep_members import members

    runs = members(found)
    logs = ""
    if part is not None:
        number, of = parsed_part(part)
        runs = parts(runs, of, at_once)[number - 1]
        logs = f"part{number}of{of}_"
    setups = [each.setup for each in runs]
    configure_logging(setups[0].config)
    if dry_run:
        outlines = outline_runs((each.setup, each.run.after) for each in runs)
        say(*describe_plan(outlines))
        if line := estimate(outlines, grid.root):
            say(line)
        return
    from speedrunner.results.analysis_plan import write_plan

    write_plan(grid.name, [each.config for each in found])
    console = SafeConsole()
    patience_s = max(setup.config.run.drain_s for setup in setups)
    result = carry_out(
        lambda shutdown: play_all(runs, console, shutdown, at_once, logs), console.say, KEPT, patience_s
    )
    if played := [each for each in setups if has_processes(each.config.run.dir)]:
        print_runs(played, console, result.reconciliations)
    if result.failures:
        lines = [f"{path}: {reason}" for path, reason in result.failures.items()]
        raise RunStopped(f"{len(lines)} of {len(setups)} runs stopped; " + "; ".join(lines))
