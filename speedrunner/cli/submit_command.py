"""`speedrunner submit`: submit a sweep as Slurm jobs."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from speedrunner.cli.command import AsJson, RunsFolder, in_flight, run_list
from speedrunner.cli.output import say, say_json, terminal_width
from speedrunner.config.console import align_columns, short_number
from speedrunner.config.schema import InvalidConfig
from speedrunner.experiments.cluster import submit as submission
from speedrunner.experiments.cluster.cluster_config import Cluster, cluster_of
from speedrunner.experiments.grid import grid_of
from speedrunner.experiments.parts import parts
from speedrunner.experiments.sweep import AT_ONCE
from speedrunner.experiments.sweep_members import Member, is_unfinished, members

DROPPED = ("nodes", "hours", "runs")
"""Columns that a narrow terminal loses first."""


def submit(
    what: Annotated[
        list[str],
        run_list(
            "The runs, as for `speedrunner sweep`, and cluster=NAME (a file of configs/cluster/, or a path)."
            " cluster.KEY=VALUE changes one of its keys."
        ),
    ],
    folder: RunsFolder = None,
    at_once: Annotated[int, in_flight("in each job")] = AT_ONCE,
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1, help="Number of jobs. Default: as many as the runs can keep busy.", show_default=False
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the jobs and their scripts; submit nothing.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Submit a sweep to Slurm as jobs that resume by themselves.

    Each job serves one model and plays some of its runs. A job that is preempted, or whose time is over,
    starts again and resumes. Finished parts are left out. `speedrunner status` shows jobs and runs.
    --dry-run prints the jobs on standard error and the scripts on standard output.

    Example: speedrunner submit experiment=main scale=smoke cluster=cpu --dry-run
    """
    cluster, file, rest = cluster_of(what)
    grid = grid_of(rest, folder)
    runs = members(grid.runs(), plays_here=False)
    dealt = parts(runs, jobs, at_once)
    wanted = [number for number, part in enumerate(dealt, start=1) if any(map(is_unfinished, part))]
    if not wanted:
        raise InvalidConfig(f"all {len(runs)} runs are finished: there is nothing to submit")
    shared = [*rest, *([f"--dir={folder}"] if folder else [])]
    sweep = [*shared, f"--in-flight={at_once}"]
    found = submission.arrays(dealt, wanted, cluster, sweep, grid.root, grid.file.stem)
    if dry_run:
        if as_json:
            say_json({"cluster": str(file), "arrays": found})
        else:
            say(*_describe_jobs(found, dealt, cluster, file), "", err=True)
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


def _describe_jobs(
    arrays: Sequence[submission.Array], dealt: Sequence[Sequence[Member]], cluster: Cluster, file: Path
) -> Iterator[str]:
    """Yield the site, a table with a row for each job, and a note."""
    yield f"site: {file}, {f'partition {cluster.partition}' if cluster.partition else 'default partition'}"
    hours, total = cluster.minutes / 60, 0.0
    rows = [["job", "runs", "nodes", "CPUs", "GB", "GPUs", "hours", "GPU-hours"]]
    for array in arrays:
        gpus = array.nodes * array.gpus
        for number in array.parts:
            left = sum(map(is_unfinished, dealt[number - 1]))
            total += gpus * hours
            counts = [left, array.nodes, cluster.cpus, cluster.memory_gb, gpus]
            times = [short_number(hours), short_number(gpus * hours)]
            rows.append([f"{array.name} {number}", *map(str, counts), *times])
    runs = sum(int(row[1]) for row in rows[1:])
    rows.append(["all", str(runs), "", "", "", "", "", short_number(total)])
    yield from align_columns(rows, terminal_width(), DROPPED)
    yield (
        "CPUs and GB are per node. GPU-hours: of one start of each job, until its time limit; a job that has"
        " unfinished runs then starts again."
    )
