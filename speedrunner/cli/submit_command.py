"""`speedrunner submit`: submit a sweep as Slurm jobs."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from speedrunner.cli.command import AsJson, RunsFolder, run_list
from speedrunner.cli.output import say, say_json
from speedrunner.cluster import submit as submission
from speedrunner.cluster.cluster_config import cluster_of
from speedrunner.config.schema import InvalidConfig
from speedrunner.experiments.grid import grid_of
from speedrunner.experiments.parts import parts
from speedrunner.experiments.sweep import is_unfinished, members


def submit(
    what: Annotated[
        list[str],
        run_list(
            "The runs, as for `speedrunner sweep`, and cluster=NAME (a file of configs/cluster/, or a path)."
            " cluster.KEY=VALUE changes one of its keys."
        ),
    ],
    folder: RunsFolder = None,
    at_once: Annotated[
        int, typer.Option("--in-flight", min=1, help="Episodes at the same time, in each job.")
    ] = 64,
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1, help="Number of jobs. Default: as many as the runs can keep busy.", show_default=False
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the scripts and submit nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Submit a sweep to Slurm as jobs that resume by themselves.

    Each job serves one model and plays some of its runs. A job that is preempted, or whose time is over,
    starts again and resumes. Finished parts are left out. `speedrunner status` shows jobs and runs.

    Example: speedrunner submit experiment=main scale=smoke cluster=cpu --dry-run
    """
    cluster, rest = cluster_of(what)
    grid = grid_of(rest, folder)
    runs = members(grid.runs(), plays_here=False)
    dealt = parts(runs, jobs, at_once)
    wanted = [number for number, part in enumerate(dealt, start=1) if any(map(is_unfinished, part))]
    if not wanted:
        raise InvalidConfig(f"all {len(runs)} runs are finished: there is nothing to submit")
    shared = [*rest, *([f"--dir={folder}"] if folder else [])]
    sweep = [*shared, f"--in-flight={at_once}"]
    found = submission.arrays(dealt, wanted, cluster, sweep, grid.root)
    if dry_run:
        if as_json:
            say_json({"arrays": found})
        else:
            say("\n".join(each.script for each in found), end="")
        return
    submission.require_free([each.path for number in wanted for each in dealt[number - 1]], grid.root)
    submitted = [job for each in found for job in submission.submit(each, grid.root)]
    grid.announce(["speedrunner", "sweep", *shared], [each.run for each in runs])
    if as_json:
        say_json({"jobs": submitted})
        return
    for job in submitted:
        names = ", ".join(Path(each).name for each in job.runs)
        say(f"job {job.job}: {names} (log: {job.log})")
    say(f"`speedrunner status {shlex.quote(str(grid.root))}` shows their status")
