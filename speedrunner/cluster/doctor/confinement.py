"""Whether what models write can be isolated; the error says what to ask the administrators for."""

from __future__ import annotations

from collections.abc import Iterator

from speedrunner.cluster.subject import Subject
from speedrunner.findings import Finding, failure, ok, warning
from speedrunner.runs.machine import confinement
from speedrunner.sandbox.child_process import require
from speedrunner.sandbox.settings import SandboxError

HOW = "docs/troubleshooting.md says how, at: skills cannot be isolated here"


def sandboxes(subject: Subject) -> Iterator[Finding]:
    """Whether each kind of sandbox that is configured starts, by starting it."""
    for each in subject.sandboxes:
        try:
            require(each.limits)
        except SandboxError as error:
            yield failure("sandbox", str(error), HOW)
            continue
        strength = confinement(each.limits)
        if each.kind == "rlimits":
            isolating = "leave sandbox=rlimits out: where isolation is possible, it is the default"
            yield warning("sandbox", f"it isolates nothing: {strength}", isolating)
        else:
            yield ok("sandbox", strength)
