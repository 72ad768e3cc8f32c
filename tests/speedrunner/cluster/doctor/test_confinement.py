"""The sandbox: whether it starts, and what to ask for where it does not."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from speedrunner.cluster.doctor.confinement import sandboxes, to_ask_for
from speedrunner.cluster.subject import subject_of
from tests.processes import in_namespaces

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
    assert level == "failure"
    assert "exceeded" in text
    assert remedy.startswith("ask the administrators for: sysctl user.max_user_namespaces=15000")


@pytest.mark.parametrize(
    ("switch", "value", "remedy"),
    [
        ("kernel/unprivileged_userns_clone", 0, "sysctl kernel.unprivileged_userns_clone=1"),
        ("user/max_user_namespaces", 0, "sysctl user.max_user_namespaces=15000"),
        (
            "kernel/apparmor_restrict_unprivileged_userns",
            1,
            "an AppArmor profile that allows `userns` to bwrap",
        ),
    ],
)
def test_the_kernel_s_switch_that_closes_it_is_asked_for(
    tmp_path: Path, switch: str, value: int, remedy: str
) -> None:
    file = tmp_path / switch
    file.parent.mkdir()
    file.write_text(f"{value}\n")
    assert to_ask_for(tmp_path).startswith(f"ask the administrators for: {remedy}")
    file.write_text(f"{1 - value}\n")
    assert to_ask_for(tmp_path).startswith("the kernel's settings allow it")


def test_a_missing_program_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    wanted = to_ask_for(tmp_path)
    assert wanted.startswith("ask the administrators for: the package bubblewrap on the compute nodes")
