"""Slurm jobs that play a sweep: `speedrunner sweep ... cluster=NAME`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from speedrunner.cli.output import say, say_json
from speedrunner.cluster import submit as submission
from speedrunner.cluster.cluster_config import Cluster, Site
from speedrunner.cluster.jobs import JobPart, JobStatus, job_status
from speedrunner.config.grid import Grid
from speedrunner.config.schema import InvalidConfig
from speedrunner.plain.console import align_columns, count_of, short_number
from speedrunner.plain.slurm import SlurmRefused
from speedrunner.runs.planned_runs import PlannedRun, is_unfinished, set_up_runs, split_into_parts


def submit_jobs(
    site: Site, grid: Grid, folder: Path | None, at_once: int, jobs: int | None, dry_run: bool, as_json: bool
) -> None:
    """Submit a sweep as Slurm jobs, or print them and their scripts.

    Args:
        grid: the runs that `site.others` name.
        jobs: number of jobs; `None`: as many as the runs can keep busy.
    """
    cluster, file, rest = site
    runs = set_up_runs(grid.runs(), plays_here=False)
    dealt = split_into_parts(runs, jobs, at_once)
    wanted = [number for number, part in enumerate(dealt, start=1) if any(map(is_unfinished, part))]
    if not wanted:
        raise InvalidConfig(f"{count_of(len(runs), 'run')}, all finished: there is nothing to submit")
    queued = [] if dry_run else [job for job in job_status(grid.root) if job.in_queue]
    busy = {run: job for job in queued for run in job.runs}
    playing = dict[int, JobStatus]()
    for number in wanted:
        left = [str(Path(run.path).resolve()) for run in dealt[number - 1] if is_unfinished(run)]
        jobs_of_part = [busy[path] for path in left if path in busy]
        if 0 < len(jobs_of_part) < len(left):
            raise InvalidConfig(
                f"job {jobs_of_part[0].job}, which is {jobs_of_part[0].state}, plays a part of part {number}:"
                " submit the list with the number of jobs that it was submitted with, or wait for that job"
            )
        if jobs_of_part:
            playing[number] = jobs_of_part[0]
    wanted = [number for number in wanted if number not in playing]
    if not wanted:
        jobs_in_queue = ", ".join(sorted({f"{job.job} ({job.state})" for job in playing.values()}))
        raise InvalidConfig(
            f"jobs in the queue play all unfinished runs: {jobs_in_queue}. Wait for them, or cancel them with"
            " `scancel`"
        )
    shared = [*rest, *([f"--dir={folder}"] if folder else [])]
    sweep = [*shared, f"--in-flight={at_once}"]
    arrays = submission.arrays(dealt, wanted, cluster, sweep, grid.root, grid.file.stem)
    if dry_run:
        if as_json:
            say_json({"cluster": str(file), "arrays": arrays})
        else:
            say(*_describe_jobs(arrays, dealt, cluster, file), "", err=True)
            say("\n".join(array.script for array in arrays), end="")
        return
    from speedrunner.results.analysis_plan import write_plan  # imports pandas

    write_plan(grid.name, [run.setup.config for run in runs])
    submitted: list[JobPart] = []
    for array in arrays:
        try:
            submitted += submission.submit(array, grid.root)
        except SlurmRefused as error:
            if not submitted:
                raise
            names = ", ".join(job.job for job in submitted)
            raise SlurmRefused(
                f"{error}. Submitted before this error: {names}. The same command submits the rest"
            ) from None
    if as_json:
        say_json({"jobs": submitted})
        return
    for number, job_in_queue in playing.items():
        say(
            f"part {number} is not submitted: job {job_in_queue.job}, which is {job_in_queue.state}, plays it"
        )
    for job in submitted:
        names = ", ".join(Path(run).name for run in job.runs)
        say(f"job {job.job}: {names} (log: {job.log})")
    say(f"`speedrunner status {shlex.quote(str(grid.root))}` shows their status")


def _describe_jobs(
    arrays: Sequence[submission.Array], dealt: Sequence[Sequence[PlannedRun]], cluster: Cluster, file: Path
) -> Iterator[str]:
    """Yield the site, and a row for each job with what it takes until its time limit."""
    yield f"site: {file}, {f'partition {cluster.partition}' if cluster.partition else 'default partition'}"
    hours = cluster.minutes / 60
    rows = [["job", "runs", "CPUs", "GB", "GPUs", "hours", "GPU-hours"]]
    for array in arrays:
        for number in array.parts:
            left = sum(map(is_unfinished, dealt[number - 1]))
            counts = [left, cluster.cpus, cluster.memory_gb or "-", array.gpus]
            times = [short_number(hours), short_number(array.gpus * hours)]
            rows.append([f"{array.name} {number}", *map(str, counts), *times])
    yield from align_columns(rows)
