"""`speedrunner prepare`: download what nodes without a network need."""

from __future__ import annotations

import typer

from speedrunner.cli.command import RunOrList
from speedrunner.cli.output import say, waiting_line
from speedrunner.cluster.cluster_subject import subject_of
from speedrunner.cluster.prepare import prepare as prepare_subject


def prepare(what: RunOrList = None) -> None:
    """Download and build what runs need on nodes without a network.

    It prepares weights and tokenizers of all models, Java, and compiled files of environments. Call it on a
    machine with a network, such as a login node. HF_HOME is the folder of weights from the hub.
    Nothing is downloaded twice. Exit status 1: something could not be prepared.

    Example: speedrunner prepare experiment=main model=qwen3.5-27b
    """

    subject, failed = subject_of(what or []), False
    with waiting_line() as status:
        for finding in prepare_subject(subject, status):
            say(*finding.lines())
            failed |= finding.level == "failed"
    if failed:
        raise typer.Exit(1)
    say(f"now, on a node: {subject.doctor}")
