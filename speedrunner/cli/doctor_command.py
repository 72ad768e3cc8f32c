"""`speedrunner doctor`: check whether this machine can play."""

from __future__ import annotations

from speedrunner.cli.command import AsJson, RunOrList, RunsFolder
from speedrunner.cli.output import end_report, say, waiting_line
from speedrunner.cluster.cluster_subject import subject_of
from speedrunner.cluster.doctor import examine


def doctor(what: RunOrList = None, folder: RunsFolder = None, as_json: AsJson = False) -> None:
    """Check this machine before a run and say how to fix problems.

    Checked are files, GPUs, engine, sandbox, Java, folders and memory. Each line says ok, warning or
    FAILED. No server is started and nothing is downloaded. Exit status 1: a check failed. On a cluster,
    check a compute node through srun.

    Example: srun --gres=gpu:1 speedrunner doctor model=qwen3.5-27b
    """
    subject = subject_of(what or [], folder)
    with waiting_line() as status:
        found = examine(subject, status, lambda each: None if as_json else say(*each.lines()))
    end_report(found, as_json=as_json)
