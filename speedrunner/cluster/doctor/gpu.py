"""GPUs and the compilers that serving on them needs."""

from __future__ import annotations

from collections.abc import Iterator

from serving.engine.gpu_check import read_gpus, server_problems, too_few, toolkit_problems
from serving.engine.toolkit import Problem
from speedrunner.cluster.doctor.finding import Finding, ok
from speedrunner.cluster.subject import Subject


def gpus(subject: Subject) -> Iterator[Finding]:
    """Check whether this machine's GPUs can serve the models."""
    if not subject.gpus:
        yield ok("GPU", "none is needed")
        return
    report = read_gpus()
    if problem := too_few(report, subject.gpus, subject.doctor):
        yield _finding("GPU", problem)
    problems: list[Problem] = []
    first = 0
    for card, _ in subject.served:
        if first + card.gpus_of_a_node > subject.gpus:  # a server of another run
            first = 0
        own = report.visible[first : first + card.gpus_of_a_node]
        first += len(own)
        if own:
            problems += (each for each in server_problems(card, own, report) if each not in problems)
    yield from (_finding("GPU", each) for each in problems)
    if len(report.visible) >= subject.gpus and not any(each.fatal for each in problems):
        names = ", ".join(map(str, report.visible))
        yield ok("GPU", f"{subject.gpus} needed; here: {names}; driver {report.visible[0].driver}")
    if report.visible:
        compilers = [_finding("CUDA toolkit", each) for each in toolkit_problems()]
        yield from compilers or [ok("CUDA toolkit", "it compiles a kernel")]


def _finding(name: str, problem: Problem) -> Finding:
    return Finding(name, "failure" if problem.fatal else "warning", problem.text, problem.remedy)
