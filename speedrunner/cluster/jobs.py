"""The jobs that were submitted for the runs of a folder, and their states in Slurm's queue."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from speedrunner.plain.slurm import SlurmRefused, run_slurm
from speedrunner.store import json_records
from speedrunner.store.discovery import find_files
from speedrunner.store.records import FORMAT

JOBS = "jobs.jsonl"
"""The jobs file in the folder of a sweep's runs."""

QUEUE = ("JobArrayID", "State", "NodeList", "RestartCnt", "Reason")
"""Columns of the queue."""


class JobPart(msgspec.Struct, frozen=True):
    """A job: its id in Slurm's queue, its log, and the directories of its runs."""

    job: str
    log: str
    runs: list[str]


class Submitted(msgspec.Struct, frozen=True):
    """Jobs that were submitted together, as one array."""

    jobs: list[JobPart]
    format: int = FORMAT


class JobStatus(JobPart, frozen=True):
    """The state of a job.

    Attributes:
        state: Slurm's state in lower case, such as `pending`, `running`, `completing`; `ended` if it is no
            longer in the queue, `unknown` if Slurm does not answer.
        nodes: the nodes on which it runs.
        restarts: how often it was restarted.
        reason: why it waits.
    """

    state: str
    nodes: str = ""
    restarts: int = 0
    reason: str = ""

    @property
    def in_queue(self) -> bool:
        """Whether it waits or runs."""
        return self.state not in ("ended", "unknown")


def note_jobs(root: Path, submitted: Submitted) -> None:
    """Record jobs in the folder of their runs. Raises `StorageError`."""
    json_records.append_record(root / JOBS, submitted, durable=True)


def job_status(folder: Path) -> list[JobStatus]:
    """Return the jobs of runs in a folder and below it, oldest first. Slurm is asked only if there are any.

    Raises `StorageError`: a file of jobs cannot be read.
    """
    jobs = [
        job
        for file in find_files(folder, JOBS)
        for submitted in json_records.read_records(file, Submitted)
        for job in submitted.jobs
    ]
    if not jobs:
        return []
    try:
        queue = _queue()
    except SlurmRefused as error:
        return [JobStatus(job.job, job.log, job.runs, "unknown", reason=str(error)) for job in jobs]
    gone = {"state": "ended"}
    return [JobStatus(job.job, job.log, job.runs, **queue.get(job.job, gone)) for job in jobs]


def _queue() -> dict[str, dict[str, Any]]:
    """Return the state of this user's jobs by their ids. Raises `SlurmRefused`."""
    columns = ",".join(f"{name}:|" for name in QUEUE)
    queue = {}
    for line in run_slurm("squeue", "--me", "--array", "--noheader", f"--Format={columns}").splitlines():
        job, state, nodes, restarts, reason, *_ = (*line.split("|"), "", "", "", "")
        queue[job] = {
            "state": state.lower(),
            "nodes": nodes,
            "restarts": int(restarts) if restarts.isdigit() else 0,
            "reason": reason if state == "PENDING" else "",
        }
    return queue
