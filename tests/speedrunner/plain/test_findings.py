"""What checks have found, as people and programs read it."""

from __future__ import annotations

from speedrunner.plain.findings import Finding


def test_the_first_details_are_shown_and_the_others_counted() -> None:
    found = Finding("files", "failed", "2 files\nof episodes", details=["a: is missing"], found=3)
    assert found.lines() == [
        "FAILED       files: 2 files of episodes",
        "             a: is missing",
        "             and 2 more",
    ]
