"""Query Slurm about jobs through its own commands."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import time
from collections.abc import Mapping

RESERVE_S = 30.0
"""Seconds of a job reserved for stopping its server and writing token reconciliations."""

ANSWER_S = 30.0
"""Timeout in seconds for Slurm's controller, which may be busy."""

TRIES, PAUSE_S = 3, 2.0

_LEFT = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)")


class SlurmRefused(Exception):
    """A command of Slurm is missing or fails. The text is a line for people."""


def run_slurm(*command: str, text: str = "", environment: Mapping[str, str] | None = None) -> str:
    """Return the output of a Slurm command.

    Args:
        text: its input.
        environment: its environment variables; `None`: those of this process.

    Raises `SlurmRefused`.
    """
    try:
        done = subprocess.run(
            command,
            input=text,
            env=environment,
            capture_output=True,
            encoding="utf-8",  # independent of the locale
            errors="replace",
            timeout=ANSWER_S,
            check=False,
        )
    except FileNotFoundError:
        raise SlurmRefused(
            f"`{command[0]}` is not installed here: is this a node of a Slurm cluster?"
        ) from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SlurmRefused(f"`{command[0]}` does not answer: {error}") from None
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).split()) or f"exit status {done.returncode}"
        raise SlurmRefused(f"`{command[0]}` refuses: {said}")
    return done.stdout


def own_job() -> str | None:
    """Return the job of this process, as Slurm's commands name it; `None` outside of a job.

    One task of an array has the plain number of the whole array, so tasks are named by array and index.
    """
    array, task = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    return f"{array}_{task}" if array and task else os.environ.get("SLURM_JOB_ID")


def has_ended(job: str) -> bool:
    """Return whether Slurm reports that no process of a job runs: it has ended, or waits for a restart."""
    try:
        states = run_slurm("squeue", "--noheader", f"--jobs={job}", "--format=%T").split()
    except SlurmRefused as error:
        return "Invalid job id" in str(error)  # the job ended minutes ago
    return set(states) <= {"PENDING"}


def time_left_s() -> float | None:
    """Return the seconds that this process's job has for work, until its end minus `RESERVE_S`.

    `None` outside of a job, in one without a limit, or if its end is unknown, which is logged.
    """
    job = own_job()
    if job is None:
        return None
    end = os.environ.get("SLURM_JOB_END_TIME", "")  # Slurm 23.02 and newer
    if (end.isdigit() and int(end) <= time.time()) or has_ended(job):  # a terminal has kept the variables
        logging.getLogger(__name__).warning("SLURM_JOB_ID is ignored: job %s is over", job)
        return None
    if end.isdigit():
        return max(int(end) - time.time() - RESERVE_S, 0.0)
    left = _query_remaining(job)
    if (parts := _LEFT.fullmatch(left)) is None:
        if left not in ("UNLIMITED", "NOT_SET"):
            logging.getLogger(__name__).warning("the time limit of job %s is unknown: %s", job, left)
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in parts.groups())
    return max(((days * 24 + hours) * 60 + minutes) * 60 + seconds - RESERVE_S, 0.0)


def _query_remaining(job: str) -> str:
    """Return a job's remaining time in Slurm's format, or Slurm's error."""
    why = ""
    for number in range(TRIES):
        time.sleep(PAUSE_S if number else 0)
        try:
            return run_slurm("squeue", "--noheader", f"--jobs={job}", "--format=%L").strip()
        except SlurmRefused as error:
            why = str(error)
    return why
