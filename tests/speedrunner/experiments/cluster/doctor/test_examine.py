"""All checks together."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator

import pytest

from speedrunner.config.findings import Finding, ok, warning
from speedrunner.experiments.cluster.cluster_subject import Subject, subject_of
from speedrunner.experiments.cluster.doctor.examine import environments, examine, sandboxes
from tests.processes import in_namespaces

LOOK = """
from speedrunner.experiments.cluster.doctor.examine import sandboxes
from speedrunner.experiments.cluster.cluster_subject import subject_of

(found,) = sandboxes(subject_of([]))
print(found.level, found.text, found.remedy, sep="\\n")
"""


def good(subject: Subject) -> Iterator[Finding]:
    yield ok("good", "as it should be")


def doubtful(subject: Subject) -> Iterator[Finding]:
    yield warning("doubtful", "perhaps", "look again")


def broken(subject: Subject) -> Iterator[Finding]:
    yield ok("broken", "so far")
    raise RuntimeError("what\nnobody expects")


def test_warnings_never_fail() -> None:
    said: list[Finding] = []
    found = examine(subject_of([]), print, said.append, {"good": good, "doubtful": doubtful})
    assert found.passed
    assert found.findings == said
    assert found.summary() == f"{found.subject}: 1 ok, 1 warning"


def test_a_check_that_breaks_is_a_failure_and_the_others_go_on() -> None:
    found = examine(subject_of([]), print, lambda each: None, {"broken": broken, "good": good})
    assert not found.passed
    assert [each.level for each in found.findings] == ["ok", "failed", "ok"]
    line, remedy = found.findings[1].lines()
    assert line == "FAILED       broken: could not be checked: RuntimeError: what nobody expects"
    assert "report this line" in remedy


class TestEnvironments:
    """Each is opened."""

    @pytest.mark.process
    def test_java_runs_scienceworld(self) -> None:
        (found,) = environments(subject_of(["env=scienceworld", "env.family=3"]))
        assert found.level == "ok"
        assert " opens (" in found.text

    @pytest.mark.process
    def test_without_a_family_it_is_java_alone(self) -> None:
        (found,) = environments(subject_of(["env=scienceworld"]))
        assert found.level == "ok"
        assert found.text.startswith("it starts; none of its tasks was opened (option 'family' ")

    @pytest.mark.process
    def test_another_java_that_is_none(self) -> None:
        (found,) = environments(subject_of(["env=scienceworld", "env.java=/nowhere/java"]))
        assert found.level == "failed"
        assert found.text.startswith(
            "no Java runtime at '/nowhere/java' (No such file or directory); install"
        )
        assert found.remedy.startswith("correct env.java, or remove it")

    def test_each_of_a_list_is_opened_once(self) -> None:
        runs = ["experiment=main", "scale=smoke", "env=babyai"]
        assert [each.name for each in environments(subject_of(runs))] == ["environment babyai"]


@pytest.mark.process
class TestSandboxes:
    """Each kind is started."""

    def test_one_that_starts_is_told_with_its_strength(self) -> None:
        (found,) = sandboxes(subject_of([]))
        assert found.level == "ok"
        assert "no network" in found.text

    def test_limits_alone_are_a_warning(self) -> None:
        (found,) = sandboxes(subject_of(["sandbox=rlimits"]))
        assert found.level == "warning"
        assert found.text.startswith("it isolates nothing: ")

    def test_a_system_without_user_namespaces_is_told_with_what_to_ask_for(self) -> None:
        look = shlex.join([sys.executable, "-c", LOOK])
        closed = "echo 0 > /proc/sys/user/max_user_namespaces"
        level, text, remedy = in_namespaces(f"{closed}; {look}").splitlines()
        assert level == "failed"
        assert "exceeded" in text
        assert "ask the administrators to set the sysctl user.max_user_namespaces to 15000" in text
        assert remedy.startswith("see docs/troubleshooting.md")
