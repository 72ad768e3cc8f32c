"""Checks of GPUs and the compilers that serving on them needs."""

from __future__ import annotations

from collections.abc import Iterator

from serving.engine.gpus import read_gpus
from serving.engine.toolkit import Problem, find_toolkit
from serving.gpu_check import all_problems, too_few, toolkit_problems
from speedrunner.cluster.cluster_subject import Subject
from speedrunner.findings import Finding, ok


def gpus(subject: Subject) -> Iterator[Finding]:
    """Check whether this machine's GPUs can serve the models."""
    if not subject.gpus:
        yield ok("GPU", "none is needed")
        return
    report = read_gpus()
    if problem := too_few(report, subject.gpus, subject.doctor):
        yield _finding("GPU", problem)
    problems = list(
        dict.fromkeys(each for servers in subject.together for each in all_problems(servers, report))
    )
    yield from (_finding("GPU", each) for each in problems)
    if len(report.usable) >= subject.gpus and not any(each.fatal for each in problems):
        names = ", ".join(map(str, report.usable))
        yield ok("GPU", f"{subject.gpus} needed; here: {names}; driver {report.usable[0].driver}")
    if report.usable:
        compilers = [_finding("CUDA toolkit", each) for each in toolkit_problems(find_toolkit())]
        yield from compilers or [ok("CUDA toolkit", "it compiles a kernel")]


def _finding(name: str, problem: Problem) -> Finding:
    return Finding(name, "failed" if problem.fatal else "warning", problem.text, problem.remedy)
