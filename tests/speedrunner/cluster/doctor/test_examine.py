"""All checks together."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from speedrunner.cluster.doctor.examine import environments, examine
from speedrunner.cluster.subject import Subject, subject_of
from speedrunner.findings import Finding, ok, warning


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
        assert found.text.startswith("it starts; no task of it was opened (option 'family' ")

    @pytest.mark.process
    def test_another_java_that_is_none(self) -> None:
        (found,) = environments(subject_of(["env=scienceworld", "env.java=/nowhere/java"]))
        assert found.level == "failed"
        assert found.text.startswith(
            "no Java runtime at '/nowhere/java' (No such file or directory); install"
        )
        assert found.remedy.startswith("correct env.java, or leave it out")

    def test_each_of_a_list_is_opened_once(self) -> None:
        runs = ["experiment=main", "scale=smoke", "env=babyai"]
        assert [each.name for each in environments(subject_of(runs))] == ["environment babyai"]
