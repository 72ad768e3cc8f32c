"""Where called skills come from: the sleeps that wrote them, and the episodes that those sleeps name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from speedrunner.pages.edit_diffs import match_turns
from speedrunner.pages.named_episodes import Evidence, sleep_turns
from speedrunner.pages.sleep_page import sleep_evidence
from speedrunner.store.json_records import leave_out
from speedrunner.store.policies import InvalidPolicy
from speedrunner.store.records import Skill, SleepRecord
from speedrunner.store.run_data import RunData


class OriginSkill(msgspec.Struct, frozen=True):
    """A skill as one sleep left it.

    Attributes:
        change: `written` or `edited`.
        checkpoints: where episodes of the task called it.
        turn: turn of the sleep that requested the last edit of it, from 1; 0 if the record does not say.
    """

    name: str
    change: str
    checkpoints: list[int]
    turn: int


class Origin(msgspec.Struct, frozen=True):
    """A sleep that wrote or edited skills that the episodes called.

    Attributes:
        sleep: its number; 0: the run started with these skills.
        record: `None` for 0, and if its record is missing.
        skills: the called versions that it made.
        evidence: what its record says about the episodes that its agents read.
    """

    sleep: int
    record: SleepRecord | None
    skills: list[OriginSkill]
    evidence: Evidence


def find_origins(run: RunData, played: Iterable[tuple[int, int, Sequence[str]]]) -> list[Origin]:
    """Return the sleeps that wrote the called versions of skills, oldest first.

    Args:
        played: of each episode, the checkpoint, the version of the policy, and the skills that ran in it.
    """
    stored = set(run.policies.versions())
    libraries: dict[int, dict[str, Skill]] = {}
    called: dict[int, dict[str, list[int]]] = {}
    changes: dict[tuple[int, str], str] = {}
    for checkpoint, version, names in played:
        if version in stored and version not in libraries:
            try:
                libraries[version] = {skill.name: skill for skill in run.policies.load(version).skills}
            except InvalidPolicy as error:  # has no origins; the episodes are shown
                leave_out(error, run.left_out)
        for name in names:
            skill = libraries.get(version, {}).get(name)
            if skill is not None:
                called.setdefault(skill.edited, {}).setdefault(name, []).append(checkpoint)
                changes[skill.edited, name] = "written" if skill.created == skill.edited else "edited"
    records = {record.sleep: record for record in run.sleeps}
    found = []
    for sleep, those in sorted(called.items()):
        record = records.get(sleep)
        turns = {} if record is None else _editing_turns(record)
        skills = [
            OriginSkill(name, changes[sleep, name], points, turns.get(name, 0))
            for name, points in those.items()
        ]
        evidence = Evidence([], []) if record is None else sleep_evidence(run, record)
        found.append(Origin(sleep, record, skills, evidence))
    return found


def _editing_turns(record: SleepRecord) -> dict[str, int]:
    """Return the turn, from 1, of the last accepted edit of each definition, where the record has it."""
    found: dict[str, int] = {}
    for turn, places in match_turns(sleep_turns(record), record.edits).items():
        for edit in (record.edits[place] for place in places):
            if edit.error is None:
                found |= dict.fromkeys([*edit.names, edit.new_name or edit.name], turn + 1)
    return found
