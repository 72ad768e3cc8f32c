"""All checks, in the order in which they are reported."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator

from envs import EnvironmentFault
from envs.java_process import NoJava
from speedrunner.config.console import Status
from speedrunner.config.findings import Finding, Report, failure, ok, report, warning
from speedrunner.experiments.cluster.cluster_subject import Subject
from speedrunner.experiments.cluster.doctor import folder_checks, machine_checks, models
from speedrunner.experiments.cluster.prepare import open_task
from speedrunner.runs.machine import confinement
from speedrunner.workers.sandbox.child_process import require
from speedrunner.workers.sandbox.settings import SandboxError

Check = Callable[[Subject], Iterable[Finding]]


def sandboxes(subject: Subject) -> Iterator[Finding]:
    """Check that each configured kind of sandbox starts, by starting it."""
    for each in subject.sandboxes:
        try:
            require(each.limits)
        except SandboxError as error:
            how = "see docs/troubleshooting.md, at: skills cannot be isolated here"
            yield failure("sandbox", str(error), how)
            continue
        strength = confinement(each.limits)
        if each.kind == "rlimits":
            remedy = "remove sandbox=rlimits: isolation is the default where it is possible"
            yield warning("sandbox", f"it isolates nothing: {strength}", remedy)
        else:
            yield ok("sandbox", strength)


def environments(subject: Subject) -> Iterator[Finding]:
    """Check that each environment opens a task, with Java if it needs it."""
    for env in subject.environments:
        name = f"environment {env.name}"
        try:
            yield ok(name, open_task(env))
        except EnvironmentFault as error:
            remedy = f"run this on the machine to fix: speedrunner prepare {subject.words}"
            if isinstance(error, NoJava) and env.options.get("java"):
                remedy = "correct env.java, or remove it: a Java runtime is installed with the environments"
            yield failure(name, str(error), remedy)


CHECKS: dict[str, Check] = {
    "Slurm": machine_checks.slurm,
    "installation": models.installation,
    "model files": models.files,
    "servers": models.servers,
    "GPUs": machine_checks.gpus,
    "engine flags": models.flags,
    "sandbox": sandboxes,
    "environments": environments,
    "run folders": folder_checks.run_folders,
    "scratch": folder_checks.scratch,
    "caches": folder_checks.caches,
    "processes": machine_checks.processes,
    "memory": machine_checks.memory,
    "cores": machine_checks.cores,
}
"""The checks by the text that is shown while they run."""


def examine(
    subject: Subject,
    status: Status,
    say: Callable[[Finding], None],
    checks: dict[str, Check] = CHECKS,
) -> Report:
    """Check this machine. A check that breaks is a finding as well.

    Args:
        status: shows the running check.
        say: called with each finding.
    """
    found: list[Finding] = []

    def add(each: Finding) -> None:
        say(each)
        found.append(each)

    for name, check in checks.items():
        status(f"checking {name}")
        try:
            for each in check(subject):
                add(each)
        except Exception as error:
            text = f"could not be checked: {type(error).__name__}: {error}"
            add(failure(name, text, "report this line with the output of `speedrunner --version`"))
    return report(socket.gethostname(), found)
