"""The sandbox: whether it starts, and what to ask for where it does not."""

from __future__ import annotations

import shlex
import sys

import pytest

from speedrunner.cluster.doctor.confinement import sandboxes
from speedrunner.cluster.subject import subject_of
from tests.processes import in_namespaces

pytestmark = pytest.mark.process

LOOK = """
from speedrunner.cluster.doctor.confinement import sandboxes
from speedrunner.cluster.subject import subject_of

(found,) = sandboxes(subject_of([]))
print(found.level, found.text, found.remedy, sep="\\n")
"""


def test_one_that_starts_is_told_with_its_strength() -> None:
    (found,) = sandboxes(subject_of([]))
    assert found.level == "ok"
    assert "no network" in found.text


def test_limits_alone_are_a_warning() -> None:
    (found,) = sandboxes(subject_of(["sandbox=rlimits"]))
    assert found.level == "warning"
    assert found.text.startswith("it isolates nothing: ")


def test_a_system_without_user_namespaces_is_told_with_what_to_ask_for() -> None:
    look = shlex.join([sys.executable, "-c", LOOK])
    level, text, remedy = in_namespaces(f"echo 0 > /proc/sys/user/max_user_namespaces; {look}").splitlines()
    assert level == "failed"
    assert "exceeded" in text
    assert "ask the administrators to set the sysctl user.max_user_namespaces to 15000" in text
    assert remedy.startswith("docs/troubleshooting.md says how")
