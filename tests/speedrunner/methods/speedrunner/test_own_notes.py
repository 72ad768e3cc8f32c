"""The inducer's notes: written by a tool, versioned with the library, read in the next sleep."""

from __future__ import annotations

import pytest

from speedrunner.methods import Policy, ToolError
from speedrunner.methods.speedrunner.own_notes import CHARS, OwnNotes
from tests.scripted_engine import Answer, Request, call
from tests.scripted_runs import TO_FLAG, Runs, script

HEADING = "## Your notes"


class Inducer:
    """Writes notes in its first sleep; keeps what each sleep read first."""

    def __init__(self) -> None:
        self.read: list[str] = []
        self._learn = script(
            inducer=(
                call("write_notes", text="Flags are always to the right."),
                call("write_skill", source=TO_FLAG, public=True),
            )
        )
        self._rest = script()

    def __call__(self, request: Request) -> Answer:
        if "write_skill" in request.tools and request.turn == 0:
            self.read.append(request.task)
        return (self._learn if len(self.read) < 2 else self._rest)(request)


async def test_notes_of_one_sleep_are_read_in_the_next_and_stored_with_each_library(corridor: Runs) -> None:
    inducer = Inducer()
    run = corridor(inducer, "method.notes=true")
    await run.play()
    first, second = inducer.read
    assert first.startswith(f"{HEADING}\n\nYou have no notes yet.\n")
    assert "an earlier sleep:\n\nFlags are always to the right.\n" in second
    assert "They can have at most 4,000 characters." in first
    assert "\n\nThis is sleep 1." in first
    policies = [run.data.policies.load(version) for version in run.data.policies.versions()]
    assert [policy.method for policy in policies] == [{}, *[{"notes": "Flags are always to the right."}] * 2]
    assert not any(
        HEADING in turn.messages[0].content for each in run.data.evaluations() for turn in each.turns[:1]
    )


async def test_they_are_off_unless_asked_for(corridor: Runs) -> None:
    inducer = Inducer()
    run = corridor(inducer)
    await run.play()
    assert not any(HEADING in text for text in inducer.read)
    assert [run.data.policies.load(version).method for version in (1, 2)] == [{}, {}]


def test_they_are_bounded() -> None:
    notes = OwnNotes("old")
    with pytest.raises(ToolError, match=f"at most {CHARS:,} characters, and these have {CHARS + 1:,}"):
        notes.write_notes("x" * (CHARS + 1))
    assert notes.text == "old"


def test_empty_notes_leave_no_trace_and_other_parts_of_the_method_stay() -> None:
    policy = Policy(version=1, method={"notes": "old", "other": 1})
    assert OwnNotes.of(policy).text == "old"
    assert OwnNotes().stored_in(policy).method == {"other": 1}
