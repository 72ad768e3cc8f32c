"""`speedrunner prepare` and `doctor`: bring what runs need to a machine, and check it there."""

from __future__ import annotations

import typer

from speedrunner.cli.command import AsJson, RunOrList, RunsFolder
from speedrunner.cli.output import end_report, say, waiting_line
from speedrunner.cluster.doctor import examine
from speedrunner.cluster.needs import find_needs
from speedrunner.cluster.prepare import prepare_needs


def prepare(what: RunOrList = None) -> None:
    """Download and build what runs need on nodes without a network.

    It prepares weights and tokenizers of all models, Java, and compiled files of environments. Call it on a
    machine with a network, such as a login node. HF_HOME is the folder of weights from the hub.
    Nothing is downloaded twice. Exit status 1: something could not be prepared.

    Example: speedrunner prepare experiment=main model=qwen3.5-27b
    """
    needs, has_failed = find_needs(what or []), False
    with waiting_line() as status:
        for finding in prepare_needs(needs, status):
            say(*finding.lines())
            has_failed |= finding.level == "failed"
    if has_failed:
        raise typer.Exit(1)
    say(f"now, on a node: {needs.doctor}")


def doctor(what: RunOrList = None, folder: RunsFolder = None, as_json: AsJson = False) -> None:
    """Check this machine before a run and say how to fix problems.

    Checked are files, GPUs, engine, sandbox, Java, folders and memory. Each line says ok, warning or
    FAILED. No server is started and nothing is downloaded. Exit status 1: a check failed. On a cluster,
    check a compute node through srun.

    Example: srun --gres=gpu:1 speedrunner doctor model=qwen3.5-27b
    """
    needs = find_needs(what or [], folder)
    with waiting_line() as status:
        report = examine(needs, status, lambda finding: None if as_json else say(*finding.lines()))
    end_report(report, as_json=as_json)
