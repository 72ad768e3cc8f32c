"""All checks, in the order in which they are reported."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator

from envs import EnvironmentFault
from envs.scienceworld_jvm import NoJava
from speedrunner.cluster.doctor import confinement, folders, gpu, machine, models
from speedrunner.cluster.environments import opened
from speedrunner.cluster.subject import Subject
from speedrunner.console import Status
from speedrunner.findings import Finding, Report, failure, ok, report

Check = Callable[[Subject], Iterable[Finding]]


def environments(subject: Subject) -> Iterator[Finding]:
    """Whether each environment plays, Java among what it takes."""
    for env in subject.environments:
        name = f"environment {env.name}"
        try:
            yield ok(name, opened(env))
        except EnvironmentFault as error:
            remedy = f"where it is to be mended: speedrunner prepare {subject.words}"
            if isinstance(error, NoJava) and env.options.get("java"):
                remedy = "correct env.java, or leave it out: a Java is installed with the environments"
            yield failure(name, str(error), remedy)


CHECKS: dict[str, Check] = {
    "Slurm": machine.slurm,
    "installation": models.installation,
    "model files": models.files,
    "servers": models.servers,
    "GPUs": gpu.gpus,
    "engine flags": models.flags,
    "sandbox": confinement.sandboxes,
    "environments": environments,
    "run folders": folders.run_folders,
    "scratch": folders.scratch,
    "caches": folders.caches,
    "processes": machine.processes,
    "memory": machine.memory,
    "cores": machine.cores,
    "ports": machine.ports,
}
"""By what is shown while they run."""


def examine(
    subject: Subject,
    status: Status,
    say: Callable[[Finding], None],
    checks: dict[str, Check] = CHECKS,
) -> Report:
    """Check this machine.

    Args:
        status: shows what is being checked.
        say: called with each finding.
    """
    found = []
    for name, check in checks.items():
        status(f"checking {name}")
        for each in _carried_out(name, check, subject):
            say(each)
            found.append(each)
    return report(socket.gethostname(), found)


def _carried_out(name: str, check: Check, subject: Subject) -> Iterator[Finding]:
    """What a check finds; one that breaks is a finding as well."""
    try:
        yield from check(subject)
    except Exception as error:
        text = f"could not be checked: {type(error).__name__}: {error}"
        yield failure(name, text, "report this line with the output of `speedrunner --version`")
