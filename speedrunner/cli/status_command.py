"""`speedrunner status`: show the status of runs and their jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from speedrunner.cli.command import AsJson, Trust
from speedrunner.cli.output import say, say_json
from speedrunner.cluster.jobs import JobStatus, job_status
from speedrunner.cluster.status import RunStatus, run_status
from speedrunner.plain.console import align_columns, describe_seconds
from speedrunner.store.discovery import runs_below


def status(
    folder: Annotated[
        Path, typer.Argument(metavar="[DIR]", help="A run, or a folder with runs in or below it.")
    ] = Path("runs"),
    trust: Trust = None,
    as_json: AsJson = False,
) -> None:
    """Show the status of runs and their Slurm jobs.

    It only reads, and works from another terminal or machine while runs are played. Exit status 1: a run is
    damaged.

    Example: speedrunner status runs/smoke
    """
    runs = [run_status(path, trust or []) for path in runs_below(folder)]
    jobs = job_status(folder)
    if as_json:
        say_json({"runs": runs, "jobs": jobs})
    else:
        say(*_describe(folder, runs, jobs))
    if any(run.state == "damaged" for run in runs):
        raise typer.Exit(1)


def _describe(folder: Path, runs: list[RunStatus], jobs: list[JobStatus]) -> list[str]:
    lines = _table(runs) if runs else [f"{folder} contains no runs"]
    finished = {str(Path(run.dir).resolve()) for run in runs if run.state == "finished"}
    newest = {run: job.job for job in jobs for run in job.runs}
    for job in jobs:
        left = [run for run in job.runs if run not in finished and newest[run] == job.job]
        if job.in_queue or left:
            lines.append(_describe_job(job, left))
    return [*lines, *sorted({caveat for run in runs for caveat in run.caveats})]


def _table(runs: list[RunStatus]) -> list[str]:
    names = [Path(run.dir).name for run in runs]
    if len(set(names)) < len(names):
        names = [run.dir for run in runs]
    rows = [("run", "state", "episodes", "score")]
    for name, run in zip(names, runs, strict=True):
        episodes = f"{run.episodes}/{'?' if run.of is None else run.of}"
        score = [] if run.score is None else [f"{run.score:.3f} at {run.checkpoint}"]
        rows.append((name, run.state, episodes, ", ".join([*score, *run.tested])))
    notes = ["; ".join(filter(None, (run.doing, _note(run)))) for run in runs]
    return align_columns(rows, left=len(rows[0]), notes=notes)


def _describe_job(job: JobStatus, left: list[str]) -> str:
    """Return a job's state, its unfinished runs and its log."""
    reason = "" if job.reason in ("", "None") else f" ({job.reason})"
    where = f" on {job.nodes}" if job.nodes else reason
    again = f", restarts: {job.restarts}" if job.restarts else ""
    state = "no longer in the queue" if job.state == "ended" else f"{job.state}{where}{again}"
    names = ", ".join(Path(run).name for run in left)
    return f"job {job.job}: {state}; not finished: {names or 'none'}; log: {job.log}"


def _note(run: RunStatus) -> str:
    """Return further information about a run."""
    parts = [run.note] if run.note else []
    if run.state == "running":
        quiet = "" if run.quiet_s is None else f", last answer {describe_seconds(run.quiet_s)} ago"
        parts.append(f"{run.owner}{quiet}")
    if run.faults:
        parts.append(f"{run.faults} ended by an infrastructure error")
    return "; ".join(parts)
