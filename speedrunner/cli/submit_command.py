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
from speedrunner.config.slurm import SlurmRefused
from speedrunner.experiments.cluster import submit as submission
from speedrunner.experiments.cluster.cluster_config import Cluster, cluster_of
from speedrunner.experiments.cluster.partition import find_shortage
from speedrunner.experiments.grid import grid_of
from speedrunner.experiments.parts import parts
from speedrunner.experiments.sweep import AT_ONCE
from speedrunner.experiments.sweep_members import Member, is_unfinished, members
from speedrunner.experiments.sweep_outline import estimate

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
    starts again and resumes. Finished parts are left out. `speedrunner status` shows jobs and runs. Jobs
    ask for the cores and the memory that their episodes and servers need; cluster.cpus and
    cluster.memory_gb override this. A job that no node of the partition can give is refused. --dry-run
    prints the jobs on standard error and the scripts on standard output.

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
    found = submission.arrays(dealt, wanted, cluster, at_once, sweep, grid.root, grid.file.stem)
    if dry_run:
        shortages = [
            f"warning: {each}" for each in _find_shortages(cluster, found, "the partition was not checked: ")
        ]
        if as_json:
            say_json({"cluster": str(file), "arrays": found, "warnings": shortages})
        else:
            say(*_describe_jobs(found, dealt, cluster, file), *shortages, "", err=True)
            say("\n".join(each.script for each in found), end="")
        return
    if shortages := _find_shortages(cluster, found):
        raise InvalidConfig("; ".join(shortages))
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


def _find_shortages(
    cluster: Cluster, arrays: Sequence[submission.Array], unchecked: str | None = None
) -> list[str]:
    """Return a line for each array of jobs that the partition cannot give.

    Args:
        unchecked: how the line begins that reports a missing answer of Slurm; `None`: it is ignored, because
            sbatch reports it as well.
    """
    try:
        found = [find_shortage(cluster, each.machines) for each in arrays]
    except SlurmRefused as error:
        return [] if unchecked is None else [f"{unchecked}{error}"]
    return list(dict.fromkeys(filter(None, found)))


def _describe_jobs(
    arrays: Sequence[submission.Array], dealt: Sequence[Sequence[Member]], cluster: Cluster, file: Path
) -> Iterator[str]:
    """Yield the site, a table with a row for each job, and notes."""
    rows = [["job", "runs", "nodes", "CPUs", "GB", "GPUs", "hours", "GPU-hours", "forecast"]]
    hours, total, expected = cluster.minutes / 60, 0.0, list[float | None]()
    for array in arrays:
        gpus = array.machines.nodes * array.machines.gpus
        for number in array.parts:
            left = [each for each in dealt[number - 1] if is_unfinished(each)]
            engine_h = estimate(left).engine_h
            expected.append(None if engine_h is None else gpus * engine_h)
            total += gpus * hours
            machines = array.machines
            counts = [len(left), machines.nodes, machines.cpus, machines.memory_gb, gpus]
            times = [short_number(hours), short_number(gpus * hours), short_number(expected[-1])]
            rows.append([f"{array.name} {number}", *map(str, counts), *times])
    known = [each for each in expected if each is not None]
    runs = sum(int(row[1]) for row in rows[1:])
    sums = [short_number(total), short_number(sum(known) if len(known) == len(expected) else None)]
    yield f"site: {file}, {f'partition {cluster.partition}' if cluster.partition else 'default partition'}"
    whole = ["all", str(runs), "", "", "", "", "", *sums]
    yield from align_columns([*rows, whole], terminal_width(), DROPPED)
    yield (
        "CPUs and GB are per node. GPU-hours: of one start of each job, until its time limit; a job that has"
        " unfinished runs then starts again. forecast: GPU-hours by the forecast for whole runs."
    )
