"""Whether what models write can be isolated, and what to ask the administrators for where it cannot."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from speedrunner.cluster.doctor.finding import Finding, failure, ok, warning
from speedrunner.cluster.subject import Subject
from speedrunner.runs.machine import confinement
from speedrunner.sandbox.child_process import require
from speedrunner.sandbox.settings import SandboxError

SYSCTL = Path("/proc/sys")

SWITCHES = {
    "kernel.unprivileged_userns_clone": (0, "sysctl kernel.unprivileged_userns_clone=1"),
    "user.max_user_namespaces": (0, "sysctl user.max_user_namespaces=15000"),
    "kernel.apparmor_restrict_unprivileged_userns": (
        1,
        "an AppArmor profile that allows `userns` to bwrap, or"
        " sysctl kernel.apparmor_restrict_unprivileged_userns=0",
    ),
}
"""The kernel's settings that keep users from user namespaces: the value that does, and what opens them."""


def sandboxes(subject: Subject) -> Iterator[Finding]:
    """Whether each kind of sandbox that is configured starts, by starting it."""
    for each in subject.sandboxes:
        try:
            require(each.limits)
        except SandboxError as error:
            yield failure("sandbox", str(error), to_ask_for())
            continue
        strength = confinement(each.limits)
        if each.kind == "rlimits":
            yield warning("sandbox", f"it isolates nothing: {strength}", to_ask_for())
        else:
            yield ok("sandbox", strength)


def to_ask_for(sysctl: Path = SYSCTL) -> str:
    """What the administrators have to do so that code can be isolated, by what the kernel says of itself."""
    wanted = [] if shutil.which("bwrap") else ["the package bubblewrap on the compute nodes"]
    for name, (closed, opens) in SWITCHES.items():
        try:
            value = int((sysctl / name.replace(".", "/")).read_text())
        except (OSError, ValueError):
            continue  # this kernel has no such switch
        if value == closed:
            wanted.append(opens)
    if not wanted:
        return "the kernel's settings allow it: show the administrators what `bwrap --ro-bind / / true` says"
    return f"ask the administrators for: {'; and '.join(wanted)} (docs/troubleshooting.md says how)"
