"""What checks have found, as people and programs read it."""

from __future__ import annotations

from speedrunner.plain.findings import Finding, failure, ok, report, warning


def test_a_remedy_is_a_line_of_its_own() -> None:
    assert warning("doubtful", "perhaps", "look again").lines() == [
        "warning      doubtful: perhaps",
        "             -> look again",
    ]


def test_the_first_details_are_shown_and_the_others_counted() -> None:
    found = Finding("files", "failed", "2 files\nof episodes", details=["a: is missing"], found=3)
    assert found.lines() == [
        "FAILED       files: 2 files of episodes",
        "             a: is missing",
        "             and 2 more",
    ]


def test_a_report_passes_unless_a_finding_failed() -> None:
    good, unsure = ok("one", "fine"), warning("two", "perhaps", "look")
    assert report("here", [good, unsure, good]).passed
    assert report("here", [good, unsure, good]).summary() == "here: 2 ok, 1 warning"
    assert not report("here", [good, failure("three", "broken")]).passed
